#pragma once
// ScriptRule: one rule of a script as the file says it. Internal to script*.cc.

#include <boost/regex.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/fields.h"
#include "api/script.h"

namespace invar::api {

struct ScriptRule {
  // Conditions; all that are given must hold.
  std::optional<int64_t> turn;
  std::optional<std::string> role, equals, contains;
  std::optional<boost::regex> matches;
  std::optional<bool> any_tools;
  std::vector<std::string> tools;  // must all be offered

  // The answer.
  struct Group {
    std::string text;             // with variables
    std::vector<int32_t> tokens;  // instead, if not empty
    int64_t cost_ms = -1;         // -1: the rule's group_ms
  };
  std::vector<Group> groups;
  bool split = false;  // each token of the text is a group
  int64_t first_ms = 0, group_ms = 0;
  bool length = false;
  bool needs_tool = false;  // a text names the tool
  std::optional<Error> refusal, fault;
  int64_t retry_after_s = -1;
  int64_t fault_after_groups = -1;
  bool abrupt = false;
};

// Faults go to the sink, ids outside the vocabulary too.
void read_script_rule(const Fields& fields, int32_t vocab, ScriptRule* rule);

// What a call of the tool might look like: every required property with a value of its schema.
json::object sample_arguments(const json::object& function);

}  // namespace invar::api
