// The rows behind options.h: every flag of kolorun, in the order of the help text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/options.h"

namespace kolo::internal {

enum class FlagGroup { kRanks, kHosts, kEnvironment, kOutput, kFailure, kTuning, kInformation };

enum class FlagArgument { kNone, kRequired, kOptional, kTwo };

struct FlagRow {
  FlagGroup group;
  std::string_view names;  // "n|np|num-proc": all equal; the help shows them in this order
  FlagArgument argument;
  std::string_view placeholder;  // "N"; empty without an argument
  std::string_view help;         // empty: works, but is not shown
  // `value` and, for kTwo, `second`. Empty values when there is no argument.
  Status (*apply)(LaunchOptions& options, const std::string& value, const std::string& second);
  std::string_view no_effect = {};  // why: accepted for others' command lines, with one line
};

std::span<const FlagRow> flag_table();

}  // namespace kolo::internal
