#include "tensor/packed.h"

#include <cstring>

namespace invar {

const PackedForm* find_packed_form(const char* name) {
  for (const PackedForm& form : kPackedForms) {
    if (std::strcmp(form.name, name) == 0) return &form;
  }
  return nullptr;
}

}  // namespace invar
