#include "launcher/flag_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/options.h"

namespace kolo::internal {
namespace {

using Text = const std::string&;

Status bad(std::string text) { return invalid_argument(std::move(text)); }

Status set_count(int& target, const char* flag, const char* what, Text value, long long min,
                 long long max) {
  long long number = 0;
  if (!parse_number(value, min, max, number)) {
    return bad(std::string(flag) + " wants " + what + " from " + std::to_string(min) + " to " +
               std::to_string(max) + ", not '" + value + "'");
  }
  target = static_cast<int>(number);
  return Status::ok();
}

Status set_ranks(LaunchOptions& o, Text value, Text) {
  o.all_slots = value == "auto";
  if (o.all_slots) return Status::ok();
  return set_count(o.rank_count, "-np", "a number of ranks", value, 1, kMaxRanks);
}

// Decimal seconds such as "2" or "0.5"; at most about a month.
bool parse_seconds(Text value, Nanos& result) {
  if (value.empty() || value.find_first_not_of("0123456789.") != std::string::npos) return false;
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  if (*end != '\0' || !std::isfinite(seconds) || seconds > 2.6e6) return false;
  result = std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
  return true;
}

Status set_seconds(Nanos& target, const char* flag, Text value) {
  if (parse_seconds(value, target)) return Status::ok();
  return bad(std::string(flag) + " wants seconds, such as 2 or 0.5, not '" + value + "'");
}

const OptionRow& row_of(std::string_view key) {
  const auto rows = Config::table();
  return *std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.key == key; });
}

// An option of the library: checked by the library's own table, handed over as KOLO_<KEY>. Errors
// speak of the flag.
Status set_option(LaunchOptions& o, const char* flag, const char* key, Text value) {
  const OptionRow& row = row_of(key);
  Config config;
  if (Status status = config.set(key, value); !status) {
    const std::string begin = std::string(flag);
    const std::string end = ", not '" + value + "'";
    if (row.type == OptionRow::Type::kInteger) {
      return bad(begin + " wants a whole number from " + std::to_string(row.min) + " to " +
                 std::to_string(row.max) + end);
    }
    if (row.type == OptionRow::Type::kChoice) {
      std::string choices(row.choices);
      std::replace(choices.begin(), choices.end(), '|', ' ');
      return bad(begin + " wants one of: " + choices + end);
    }
    return bad(begin + " '" + value + "': " + status.text());
  }
  o.settings.emplace_back(key, value);
  return Status::ok();
}

// "0.5", "604800".
std::string in_seconds(std::int64_t ms) {
  std::string text = std::to_string(static_cast<double>(ms) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

Status set_seconds_option(LaunchOptions& o, const char* flag, const char* key, Text value) {
  Nanos time{};
  KOLO_RETURN_IF_ERROR(set_seconds(time, flag, value));
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  const OptionRow& row = row_of(key);
  if (ms < row.min || ms > row.max) {
    return bad(std::string(flag) + " wants from " + in_seconds(row.min) + " to " +
               in_seconds(row.max) + " seconds, not '" + value + "'");
  }
  return set_option(o, flag, key, std::to_string(ms));
}

Status set_start_timeout(LaunchOptions& o, Text value, Text) {
  KOLO_RETURN_IF_ERROR(set_seconds(o.start_timeout.emplace(), "--start-timeout", value));
  return set_seconds_option(o, "--start-timeout", "start_timeout_ms", value);
}

Status set_fusion_megabytes(LaunchOptions& o, Text value, Text) {
  long long megabytes = 0;
  if (!parse_number(value, 0, 1 << 20, megabytes)) {
    return bad("--fusion-threshold-mb wants a whole number of MiB, not '" + value + "'");
  }
  return set_option(o, "--fusion-threshold-mb", "fusion_threshold_bytes",
                    std::to_string(megabytes << 20));
}

Status set_log_level(LaunchOptions& o, Text value, Text) {
  std::string level = value;
  std::transform(level.begin(), level.end(), level.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (level == "trace") level = "debug";  // Horovod's names for what is nearest here
  if (level == "fatal") level = "error";
  return set_option(o, "--log-level", "log_level", level);
}

Status add_export(LaunchOptions& o, Text value, Text) {
  const std::size_t equals = value.find('=');
  if (value.empty() || equals == 0) return bad("-x wants VAR or VAR=VALUE, not '" + value + "'");
  if (equals == std::string::npos) {
    o.exports.push_back(value);
  } else {
    o.assignments.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  }
  return Status::ok();
}

Status add_assignment(LaunchOptions& o, Text name, Text value) {
  if (name.empty() || name.find('=') != std::string::npos) {
    return bad("-genv and -env want VAR VALUE; '" + name + "' is no name of a variable");
  }
  o.assignments.emplace_back(name, value);
  return Status::ok();
}

Status set_label(LaunchOptions& o, Text value, Text) {
  if (value.empty() || value == "rank") {
    o.label = Label::kRank;
  } else if (value == "stream") {
    o.label = Label::kStream;
  } else if (value == "none") {
    o.label = Label::kNone;
  } else {
    return bad("--label knows rank, stream and none, not '" + value + "'");
  }
  return Status::ok();
}

Status set_remote(LaunchOptions& o, Text value, Text) {
  if (value != "ssh" && value != "fork") {
    return bad("--launcher knows ssh and fork, not '" + value +
               "'; another program is named with --launcher-exec");
  }
  o.remote = value == "ssh" ? Remote::kSsh : Remote::kFork;
  return Status::ok();
}

Status set_remote_command(LaunchOptions& o, Text value, Text) {
  auto words = split_words(value);
  if (!words) return bad("--launcher-exec '" + value + "': " + words.status().text());
  if (words->empty()) return bad("--launcher-exec wants a command, such as 'ip netns exec'");
  o.remote_command = *std::move(words);
  return Status::ok();
}

Status set_port(LaunchOptions& o, Text value, Text) {
  return set_count(o.rendezvous_port, "--rendezvous-port", "a port", value, 1, 65535);
}

Status accepted(LaunchOptions&, Text, Text) { return Status::ok(); }

template <Action kAction>
Status set_action(LaunchOptions& o, Text, Text) {
  o.action = kAction;
  return Status::ok();
}

template <std::string LaunchOptions::*kMember>
Status set_text(LaunchOptions& o, Text value, Text) {
  o.*kMember = value;
  return Status::ok();
}

constexpr auto kNo = FlagArgument::kNone;
constexpr auto kOne = FlagArgument::kRequired;
constexpr auto kMaybe = FlagArgument::kOptional;
constexpr auto kPair = FlagArgument::kTwo;

constexpr std::string_view kOwnChoice = "kolo chooses by itself; see --algorithm";

constexpr FlagRow kRows[] = {
    {FlagGroup::kRanks, "n|np|num-proc", kOne, "N", "how many ranks; 'auto' is one per slot",
     set_ranks},
    {FlagGroup::kRanks, "ppn|slots-per-host", kOne, "N", "ranks on each host, whatever its slots",
     [](LaunchOptions& o, Text v, Text) {
       return set_count(o.ranks_per_host, "-ppn", "ranks per host", v, 1, kMaxRanks);
     }},
    {FlagGroup::kRanks, "wdir", kOne, "DIR", "start in DIR instead of the current directory",
     set_text<&LaunchOptions::working_directory>},

    {FlagGroup::kHosts, "H|host|hosts", kOne, "LIST", "a:4,user@b:2,[fd00::1]:2 (slots: 1)",
     set_text<&LaunchOptions::hosts>},
    {FlagGroup::kHosts, "f|hostfile|machinefile", kOne, "FILE",
     "lines 'a slots=4', 'a:4' or 'a'; # comments", set_text<&LaunchOptions::hostfile>},
    {FlagGroup::kHosts, "launcher", kOne, "HOW", "ssh, or fork: all hosts are this machine",
     set_remote},
    {FlagGroup::kHosts, "launcher-exec", kOne, "CMD", "run 'CMD host command...' instead of ssh",
     set_remote_command},
    {FlagGroup::kHosts, "p|ssh-port", kOne, "PORT", "port of the ssh servers",
     [](LaunchOptions& o, Text v, Text) {
       int port = 0;
       KOLO_RETURN_IF_ERROR(set_count(port, "--ssh-port", "a port", v, 1, 65535));
       o.ssh_port = v;
       return Status::ok();
     }},
    {FlagGroup::kHosts, "i|ssh-identity-file", kOne, "FILE", "private key for ssh",
     set_text<&LaunchOptions::ssh_identity>},
    {FlagGroup::kHosts, "agent-path", kOne, "PATH", "kolorun on the other hosts (same as here)",
     set_text<&LaunchOptions::agent_path>},
    {FlagGroup::kHosts, "network-interfaces|network-interface|iface|nics", kOne, "LIST",
     "eth0,ib0 or ^docker0 or 10.1.0.0/16", set_text<&LaunchOptions::interfaces>},
    {FlagGroup::kHosts, "rendezvous-port", kOne, "PORT", "loopback port of each agent (any)",
     set_port},
    {FlagGroup::kHosts, "start-timeout", kOne, "S", "seconds until all must have met (60)",
     set_start_timeout},

    {FlagGroup::kEnvironment, "x", kOne, "VAR[=VALUE]", "hand VAR to every rank", add_export},
    {FlagGroup::kEnvironment, "genv|env", kPair, "VAR VALUE", "the same as -x VAR=VALUE",
     add_assignment},

    {FlagGroup::kOutput, "l|prepend-rank|tag-output", kNo, "", "the same as --label=rank",
     set_label},
    {FlagGroup::kOutput, "label", kMaybe, "HOW", "rank '[3] ' (default), stream or none",
     set_label},
    {FlagGroup::kOutput, "output-filename", kOne, "DIR", "also write DIR/rank.N/{stdout,stderr}",
     set_text<&LaunchOptions::output_directory>},
    {FlagGroup::kOutput, "verbose", kNo, "", "say what is started where",
     [](LaunchOptions& o, Text, Text) {
       o.verbose = true;
       return Status::ok();
     }},

    {FlagGroup::kFailure, "grace|kill-grace", kOne, "S", "seconds from SIGTERM to SIGKILL (10)",
     [](LaunchOptions& o, Text v, Text) { return set_seconds(o.grace, "--grace", v); }},

    {FlagGroup::kTuning, "transport", kOne, "ROAD", "auto, shm, tcp, mpi or shm+mpi (by mpiexec)",
     [](LaunchOptions& o, Text v, Text) { return set_option(o, "--transport", "transport", v); }},
    {FlagGroup::kTuning, "algorithm", kOne, "NAME", "auto, oneshot, direct or ring",
     [](LaunchOptions& o, Text v, Text) { return set_option(o, "--algorithm", "algorithm", v); }},
    {FlagGroup::kTuning, "fusion-threshold-mb", kOne, "N", "fuse up to N MiB; 0 fuses nothing",
     set_fusion_megabytes},
    {FlagGroup::kTuning, "cache-capacity", kOne, "N", "tensors that ranks remember",
     [](LaunchOptions& o, Text v, Text) {
       return set_option(o, "--cache-capacity", "cache_capacity", v);
     }},
    {FlagGroup::kTuning, "disable-cache", kNo, "", "remember one tensor only",
     [](LaunchOptions& o, Text, Text) {
       return set_option(o, "--disable-cache", "cache_capacity", "1");
     }},
    {FlagGroup::kTuning, "peer-timeout-seconds", kOne, "S", "a silent rank is lost after S",
     [](LaunchOptions& o, Text v, Text) {
       return set_seconds_option(o, "--peer-timeout-seconds", "peer_timeout_ms", v);
     }},
    {FlagGroup::kTuning, "stall-check-warning-time-seconds", kOne, "S", "warn of late ranks",
     [](LaunchOptions& o, Text v, Text) {
       return set_seconds_option(o, "--stall-check-warning-time-seconds", "stall_warning_ms", v);
     }},
    {FlagGroup::kTuning, "stall-check-shutdown-time-seconds", kOne, "S",
     "give up on late ranks (0: never)",
     [](LaunchOptions& o, Text v, Text) {
       return set_seconds_option(o, "--stall-check-shutdown-time-seconds", "stall_abort_ms", v);
     }},
    {FlagGroup::kTuning, "no-stall-check", kNo, "", "neither warn nor give up",
     [](LaunchOptions& o, Text, Text) {
       KOLO_RETURN_IF_ERROR(set_option(o, "--no-stall-check", "stall_warning_ms", "0"));
       return set_option(o, "--no-stall-check", "stall_abort_ms", "0");
     }},
    {FlagGroup::kTuning, "timeline-filename", kOne, "DIR", "write a Chrome trace per rank",
     [](LaunchOptions& o, Text v, Text) {
       return set_option(o, "--timeline-filename", "timeline", v);
     }},
    {FlagGroup::kTuning, "log-level", kOne, "LEVEL", "error, warning, info or debug",
     set_log_level},

    // Of horovodrun and mpirun, for command lines that carry them.
    {FlagGroup::kTuning, "cycle-time-ms", kOne, "N", "accepted: kolo has no cycle", accepted,
     "kolo has no cycle, tensors go out at once"},
    {FlagGroup::kTuning, "stall-check", kNo, "", "", accepted},  // as it is
    {FlagGroup::kTuning, "gloo|mpi", kNo, "", "", accepted, "kolo has a transport of its own"},
    {FlagGroup::kTuning, "autotune|no-autotune", kNo, "", "", accepted, "kolo tunes nothing"},
    {FlagGroup::kTuning, "hierarchical-allreduce|no-hierarchical-allreduce", kNo, "", "", accepted,
     kOwnChoice},
    {FlagGroup::kTuning, "hierarchical-allgather|no-hierarchical-allgather", kNo, "", "", accepted,
     kOwnChoice},
    {FlagGroup::kHosts, "oversubscribe", kNo, "", "", accepted,
     "a host takes as many ranks as it has slots, whatever its cores"},
    {FlagGroup::kHosts, "bind-to", kOne, "WHAT", "", accepted, "kolo binds no rank to cores"},
    {FlagGroup::kHosts, "map-by", kOne, "WHAT", "", accepted,
     "ranks fill the slots of one host after the other"},
    {FlagGroup::kHosts, "allow-run-as-root", kNo, "", "", accepted, "root may run kolorun"},

    {FlagGroup::kInformation, "h|help", kNo, "", "this text", set_action<Action::kHelp>},
    {FlagGroup::kInformation, "version", kNo, "", "the version of kolo",
     set_action<Action::kVersion>},
    {FlagGroup::kInformation, "cb|check-build", kNo, "", "what this build holds",
     set_action<Action::kCheckBuild>},
    {FlagGroup::kInformation, "pmi-donor", kOne, "", "",
     [](LaunchOptions& o, Text v, Text) {
       o.action = Action::kPmiDonor;
       o.donors_address = v;
       return Status::ok();
     }},
    {FlagGroup::kInformation, "agent", kNo, "", "", set_action<Action::kAgent>},
};

}  // namespace

std::span<const FlagRow> flag_table() { return kRows; }

}  // namespace kolo::internal
