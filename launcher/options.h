// The command line of kolorun: one table of flags that both parses it and prints the help text.
//
// Pure but for getopt's own statics: parse_command_line() may run on one thread at a time and
// touches nothing outside. Long options take one or two dashes, as horovodrun's and mpiexec's
// users type them. Everything from the program's name on belongs to the program.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace kolo::internal {

enum class Action { kRun, kHelp, kVersion, kCheckBuild, kAgent, kPmiDonor };
enum class Remote { kAuto, kSsh, kFork };    // how agents are started
enum class Label { kRank, kStream, kNone };  // "[3] ", "[3]<stderr> ", nothing

inline constexpr int kMaxRanks = 4096;

struct LaunchOptions {
  Action action = Action::kRun;
  std::string donors_address;  // of kPmiDonor
  int rank_count = 0;          // 0: not given
  bool all_slots = false;      // -np auto
  int ranks_per_host = 0;      // 0: not given
  std::string hosts;           // -H, as typed
  std::string hostfile;
  Remote remote = Remote::kAuto;
  std::vector<std::string> remote_command;  // --launcher-exec, split into words
  std::string ssh_port;
  std::string ssh_identity;
  std::string agent_path;         // kolorun on the other hosts; empty: the path of this one
  std::string working_directory;  // empty: the current one
  std::string interfaces;
  int rendezvous_port = 0;  // 0: any free one
  Label label = Label::kRank;
  std::string output_directory;
  bool verbose = false;
  Nanos grace = 10s;
  std::optional<Nanos> start_timeout;  // not given: KOLO_START_TIMEOUT_MS counts
  std::vector<std::string> exports;    // -x VAR: value from here
  std::vector<std::pair<std::string, std::string>> assignments;  // -x VAR=VALUE, -genv
  std::vector<std::pair<std::string, std::string>> settings;     // option keys and their values
  std::vector<std::string> notes;                                // lines to print before the start
  std::vector<std::string> program;                              // with its own arguments
};

// `arguments` without the name of kolorun itself. Errors are INVALID_ARGUMENT with one clear line.
Result<LaunchOptions> parse_command_line(std::span<const std::string> arguments);

// The help text, grouped, for a terminal of 80 columns.
std::string help_text();

// Splits as a shell does, with '...', "..." and backslash; nothing is expanded or executed.
Result<std::vector<std::string>> split_words(std::string_view text);

// A whole number within [min, max], nothing else around it.
bool parse_number(std::string_view text, long long min, long long max, long long& value);

}  // namespace kolo::internal
