#pragma once
// Unfinished files of this process: written under a temporary name, renamed when they are whole. A signal
// that ends the process takes them along. All functions may be called from any thread, none from a signal
// handler.

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace invar {

// As open(2): a descriptor, or -1 with errno. The file is removed by exit_without_temporaries() until
// forget_temporary() is called, which follows its rename or removal.
int open_temporary(const std::string& path, int flags, mode_t mode);
// The same for what is made in another way, once it is there: a socket, say.
void note_temporary(const std::string& path);
void forget_temporary(const std::string& path);

// What becomes of a file that has the name by the time the new one is finished.
enum class Existing { kReplaced, kKept };
// Renames. false: errno says why, EEXIST where somebody else's file is kept. The temporary name stays noted.
bool take_name(const std::string& temporary, const std::string& path, Existing existing);
Status name_is_taken(const std::string& path);  // the error for EEXIST

// Removes what is unfinished and ends the process at once, as _exit does.
[[noreturn]] void exit_without_temporaries(int code);

}  // namespace invar
