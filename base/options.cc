#include "base/options.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/check.h"

extern char** environ;  // NOLINT: POSIX's; this file is the only reader of the environment

namespace kolo::internal {
namespace {

using Type = OptionRow::Type;

constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::int64_t kMaxMilliseconds = std::int64_t{7} * 24 * 3600 * 1000;  // a week
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;
constexpr std::size_t kMinSecretBytes = 16;

constexpr OptionRow integer_row(std::string_view key, std::string_view default_value,
                                std::int64_t min, std::int64_t max, std::string_view help) {
  return {key, Type::kInteger, default_value, min, max, {}, help};
}
constexpr OptionRow text_row(std::string_view key, std::string_view help) {
  return {key, Type::kText, "", 0, 0, {}, help};
}
constexpr OptionRow choice_row(std::string_view key, std::string_view default_value,
                               std::string_view choices, std::string_view help) {
  return {key, Type::kChoice, default_value, 0, 0, choices, help};
}
constexpr OptionRow flag_row(std::string_view key, std::string_view default_value,
                             std::string_view help) {
  return {key, Type::kFlag, default_value, 0, 0, {}, help};
}

constexpr std::array kTable = {
    integer_row("rank", "0", 0, kMaxRanks - 1, "This process's rank in the job."),
    integer_row("size", "1", 1, kMaxRanks, "Number of ranks in the job."),
    integer_row("local_rank", "0", 0, kMaxRanks - 1, "Place among the ranks of this host."),
    integer_row("local_size", "1", 1, kMaxRanks, "Number of ranks on this host."),
    integer_row("host_index", "0", 0, kMaxRanks - 1, "This host's number in the job."),
    integer_row("host_count", "1", 1, kMaxRanks, "Number of hosts in the job."),
    text_row("host_name", "This host's name in messages for people; empty: the system's."),
    text_row("launcher", "Who started this rank; \"kolorun\" serves the rendezvous itself."),
    text_row("rendezvous", "host:port where the ranks of the job meet."),
    text_row("secret", "The job's secret, at least 16 characters, the same for all; never logged."),
    text_row("secret_file", "A file that holds the job's secret; used when secret is empty."),
    text_row("job", "The job's id; tells apart jobs that meet by mistake."),
    text_row("addresses", "Comma-separated addresses of this host to listen on for other ranks."),
    integer_row("start_timeout_ms", "60000", 1, kMaxMilliseconds,
                "How long init waits for all ranks to arrive."),
    integer_row("peer_timeout_ms", "5000", 500, kMaxMilliseconds,
                "A rank that is silent for this long counts as lost."),
    integer_row("shutdown_timeout_ms", "5000", 0, kMaxMilliseconds,
                "How long shutdown waits for started operations and for the peers' farewell."),
    integer_row("stall_warning_ms", "30000", 0, kMaxMilliseconds,
                "Warn of a tensor not submitted by all, or not finished by a device, for so long; "
                "0: never."),
    integer_row("stall_abort_ms", "0", 0, kMaxMilliseconds,
                "Fail such a tensor on all ranks after this long; 0: never."),
    integer_row("fusion_threshold_bytes", "67108864", 0, kMaxBytes,
                "Most bytes that are reduced as one fused unit; 0: no fusion."),
    integer_row("fusion_tensor_bytes", "262144", 0, kMaxBytes,
                "Tensors of more bytes than this travel alone."),
    integer_row("cache_capacity", "4096", 1, 1 << 20,
                "Named tensors remembered, so that they need no full request again."),
    choice_row("transport", "auto", "auto|shm|tcp|mpi|shm+mpi",
               "Roads for the bytes: auto shares memory inside a host where it can and uses TCP "
               "between hosts; shm insists on sharing; tcp and mpi use that road alone."),
    integer_row("shm_bytes", "68719476736", 1 << 26, kMaxBytes,
                "Address space of a rank's shared segment, from which kolo_alloc takes; memory is "
                "used only as it is needed."),
    choice_row("algorithm", "auto", "auto|oneshot|direct|ring",
               "The all-reduce algorithm; auto picks by size and number of ranks."),
    integer_row("streams", "2", 1, 16, "TCP connections for data to each peer."),
    flag_row("checksum", "0",
             "Check all data over TCP by CRC32C; damage ends the connection as a lost peer."),
    choice_row("cuda", "auto", "auto|staged|off",
               "Tensors in device memory: auto reduces them by NCCL where it can; staged over the "
               "roads of the CPUs; off knows no device memory."),
    choice_row("mixed_memory", "staged", "staged|mismatch",
               "A tensor that is on a device of some ranks and in host memory of others: staged "
               "through host memory, or a mismatch on all."),
    flag_row("deterministic", "0",
             "Tensors in device memory get the bits of tensors in host memory: staged, without "
             "NCCL, whose order of additions is its own."),
    integer_row("pack_tensor_bytes", "1048576", 0, kMaxBytes,
                "Of tensors in device memory that are reduced as one fused unit, those of more "
                "bytes than this are not packed, but go to NCCL as they lie; 0: none is packed."),
    flag_row("register_memory", "0",
             "Memory of kolo_alloc_device is registered with NCCL's communicators. Then all ranks "
             "must give an operation such memory where one does, at the same distance from its "
             "beginning: NCCL defines nothing else."),
    text_row("cudart_path",
             "The CUDA runtime library (libcudart.so.12 or .13) to load; empty: the program's own, "
             "else the system's, else that of CUDA_HOME."),
    text_row("nccl_path",
             "The NCCL library (libnccl.so.2) to load; empty: the program's own, else the "
             "system's, else that of CUDA_HOME."),
    text_row("timeline", "A folder for one Chrome-trace file per rank; empty: no trace."),
    choice_row("log_level", "warning", "error|warning|info|debug", "The least urgent line shown."),
    flag_row("notice", "1", "Say so, in one line, when this process is a job of one rank."),
    integer_row("spin_us", "5", 0, 1'000'000,
                "How long a waiter spins before it yields; 0 when ranks outnumber cores."),
};

const OptionRow* find_row(std::string_view key) {
  const auto* row = std::ranges::find(kTable, key, &OptionRow::key);
  return row == kTable.end() ? nullptr : row;
}

constexpr std::string_view kVariablePrefix = "KOLO_";

std::string variable_of(std::string_view key) {
  std::string name(kVariablePrefix);
  for (const char c : key) name += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::string quoted(std::string_view text) {
  std::string result(1, '"');
  return result.append(text).append(1, '"');
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  return std::nullopt;
}

bool is_choice(std::string_view choices, std::string_view value) {
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == value) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

bool is_host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const auto port = parse_integer(text.substr(colon + 1));
  return port && *port >= 0 && *port <= 65535;
}

// What a value of this row must look like, or nothing if `value` does.
std::string complaint(const OptionRow& row, std::string_view value) {
  switch (row.type) {
    case Type::kInteger: {
      const auto number = parse_integer(value);
      if (number && *number >= row.min && *number <= row.max) return "";
      return "must be an integer from " + std::to_string(row.min) + " to " +
             std::to_string(row.max);
    }
    case Type::kFlag:
      return parse_flag(value) ? "" : "must be 0 or 1 (or false, true, off, on, no, yes)";
    case Type::kChoice:
      return is_choice(row.choices, value) ? "" : "must be one of " + std::string(row.choices);
    case Type::kText:
      if (row.key == "rendezvous" && !value.empty() && !is_host_and_port(value)) {
        return "must be host:port with a port from 0 to 65535";
      }
      if (row.key == "secret" && !value.empty() && value.size() < kMinSecretBytes) {
        return "must have at least " + std::to_string(kMinSecretBytes) + " characters";
      }
      return "";
  }
  return "has no known type";
}

// `value` as it is stored, or the error. `source` says where the value came from.
Result<std::string> checked(const OptionRow& row, std::string_view value,
                            const std::string& source) {
  if (const std::string wanted = complaint(row, value); !wanted.empty()) {
    const std::string shown = row.key == "secret" ? "(not shown)" : quoted(value);
    return invalid_argument("option " + std::string(row.key) + " = " + shown + ", from " + source +
                            ", " + wanted);
  }
  if (row.type == Type::kFlag) return std::string(*parse_flag(value) ? "1" : "0");
  return std::string(value);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Status unknown_key(std::string_view key) {
  constexpr std::size_t kLongestShown = 64;  // also bounds the work below
  constexpr std::size_t kStillMeant = 3;     // letters that differ
  const std::string_view shown = key.substr(0, kLongestShown);
  const OptionRow* nearest = nullptr;
  std::size_t least = kStillMeant + 1;
  for (const OptionRow& row : kTable) {
    const auto [shorter, longer] = std::minmax({row.key.size(), shown.size()});
    if (longer - shorter >= least) continue;  // they differ by at least that
    const std::size_t distance = edit_distance(row.key, shown);
    if (distance >= least) continue;
    nearest = &row;
    least = distance;
  }
  std::string text = "there is no option " + quoted(shown);
  if (nearest != nullptr) {
    text += "; did you mean " + quoted(nearest->key) + "?";
  } else {
    text += "; docs/options.md lists them (keys are the KOLO_* variables in lower case)";
  }
  return invalid_argument(std::move(text));
}

const char* variable(const std::string& name) { return std::getenv(name.c_str()); }

// Another launcher's family: how it says "one of several".
struct Family {
  const char* rank;
  const char* size;
  const char* launcher;
};

constexpr Family kForeignFamilies[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH's launcher"},
    {"PMI_RANK", "PMI_SIZE", "an MPI launcher without PMI_FD"},
    // The step's own number: SLURM_NTASKS is also set in a batch script, which is one process.
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "Slurm's srun"},
};

Status check_foreign_families() {
  for (const Family& family : kForeignFamilies) {
    const char* rank = std::getenv(family.rank);
    const char* size = std::getenv(family.size);
    if (size == nullptr) continue;
    const auto ranks = parse_integer(size);
    if (!ranks || *ranks <= 1) continue;
    return invalid_argument(
        "this process looks like " +
        (rank == nullptr ? std::string("a rank") : std::string("rank ") + rank) + " of " + size +
        " under " + family.launcher + " (" + family.rank + ", " + family.size +
        "), and kolo cannot yet meet under that launcher; start the program with kolorun, or give "
        "every process KOLO_RANK, KOLO_SIZE, KOLO_RENDEZVOUS and one KOLO_SECRET or "
        "KOLO_SECRET_FILE of at least 16 characters");
  }
  return Status::ok();
}

}  // namespace

std::string Config::cuda_home() {
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = variable(name); value != nullptr && *value != '\0') return value;
  }
  return "/usr/local/cuda";
}

std::string Config::foreign(const char* name) {
  const char* const value = variable(name);
  return value == nullptr ? "" : value;
}

std::span<const OptionRow> Config::table() { return kTable; }

Status Config::check_key(std::string_view key) {
  return find_row(key) == nullptr ? unknown_key(key) : Status::ok();
}

Status Config::set(std::string_view key, std::string_view value) {
  const OptionRow* row = find_row(key);
  if (row == nullptr) return unknown_key(key);
  auto stored = checked(*row, value, "config_set");
  if (!stored) return stored.status();
  set_[std::string(key)] = *std::move(stored);
  return Status::ok();
}

void Config::forget(std::string_view key) {
  for (auto* values : {&set_, &environment_}) {
    const auto found = values->find(key);
    if (found == values->end()) continue;
    ::explicit_bzero(found->second.data(), found->second.size());
    values->erase(found);
  }
}

Status Config::load_environment(std::vector<std::string>& unknown) {
  environment_.clear();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with("KOLO_") || name.starts_with("KOLO_TEST_")) continue;
    const auto* row = std::ranges::find_if(kTable, [&](const OptionRow& candidate) {
      return name.size() == kVariablePrefix.size() + candidate.key.size() &&
             variable_of(candidate.key) == name;
    });
    if (row == kTable.end()) {
      unknown.emplace_back(name);
      continue;
    }
    KOLO_RETURN_IF_ERROR(load_variable(row->key, std::string(name)));
  }
  std::ranges::sort(unknown);
  if (!is_set("rank") && !is_set("size")) KOLO_RETURN_IF_ERROR(load_launcher_family());
  return check_family();
}

// Reads one variable as the value of option `key`; an absent one is fine, an empty one counts as
// absent unless the option is a text.
Status Config::load_variable(std::string_view key, const std::string& name) {
  const char* value = variable(name);
  const OptionRow* row = find_row(key);
  KOLO_CHECK(row != nullptr);
  if (value == nullptr || (*value == '\0' && row->type != Type::kText)) return Status::ok();
  auto stored = checked(*row, value, "the environment variable " + name);
  if (!stored) return stored.status();
  environment_[std::string(key)] = *std::move(stored);
  return Status::ok();
}

// MPICH's mpiexec and its like: PMI_FD is the way to the launcher, where the ranks can meet
// (transport/pmi). A meeting place of the user's own is left to rank 0, as without a launcher.
Status Config::load_pmi_family() {
  KOLO_RETURN_IF_ERROR(load_variable("rank", "PMI_RANK"));
  KOLO_RETURN_IF_ERROR(load_variable("size", "PMI_SIZE"));
  if (is_set("rendezvous")) return Status::ok();
  auto place = checked(*find_row("rendezvous"), "pmi:" + std::string(variable("PMI_FD")),
                       "the environment variable PMI_FD");
  if (!place) return place.status();
  environment_["rendezvous"] = *std::move(place);
  if (!is_set("launcher")) environment_["launcher"] = "pmi";
  return Status::ok();
}

// Another launcher's variables, when kolo's own do not say who this rank is; torchrun's first.
Status Config::load_launcher_family() {
  if (variable("RANK") == nullptr && variable("WORLD_SIZE") == nullptr) {
    const bool has_pmi = variable("PMI_RANK") != nullptr && variable("PMI_SIZE") != nullptr &&
                         variable("PMI_FD") != nullptr;
    return has_pmi ? load_pmi_family() : check_foreign_families();
  }
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    if (variable(name) != nullptr) continue;
    return invalid_argument(
        std::string("torchrun's variables are incomplete: ") + name + " is missing beside " +
        (std::strcmp(name, "RANK") == 0 ? "WORLD_SIZE" : "RANK") +
        "; set both, unset both, or set KOLO_RANK and KOLO_SIZE, which win (and "
        "KOLO_SECRET or KOLO_SECRET_FILE)");
  }
  KOLO_RETURN_IF_ERROR(load_variable("rank", "RANK"));
  KOLO_RETURN_IF_ERROR(load_variable("size", "WORLD_SIZE"));
  if (!is_set("local_rank") && !is_set("local_size")) {
    KOLO_RETURN_IF_ERROR(load_variable("local_rank", "LOCAL_RANK"));
    KOLO_RETURN_IF_ERROR(load_variable("local_size", "LOCAL_WORLD_SIZE"));
  }
  const char* address = variable("MASTER_ADDR");
  const char* port = variable("MASTER_PORT");
  if (is_set("rendezvous") || (address == nullptr && port == nullptr)) return Status::ok();
  if (address == nullptr || port == nullptr) {
    return invalid_argument(std::string("torchrun's variables are incomplete: ") +
                            (address == nullptr ? "MASTER_ADDR" : "MASTER_PORT") +
                            " is missing; set MASTER_ADDR and MASTER_PORT, or KOLO_RENDEZVOUS");
  }
  const std::string_view host = address;
  const bool is_bare_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const std::string place =
      (is_bare_ipv6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
  auto stored = checked(*find_row("rendezvous"), place,
                        "the environment variables MASTER_ADDR and MASTER_PORT");
  if (!stored) return stored.status();
  environment_["rendezvous"] = *std::move(stored);
  return Status::ok();
}

// A rank without its size would be a silent rank 0 of 1, or a job that never meets.
Status Config::check_family() const {
  struct Pair {
    std::string_view index;
    std::string_view total;
  };
  constexpr Pair kPairs[] = {
      {"rank", "size"}, {"local_rank", "local_size"}, {"host_index", "host_count"}};
  for (const auto& [index, total] : kPairs) {
    if (is_set(index) != is_set(total)) {
      const auto present = is_set(index) ? index : total;
      const auto absent = is_set(index) ? total : index;
      return invalid_argument("option " + std::string(present) + " (" + variable_of(present) +
                              ") is set and " + std::string(absent) + " (" + variable_of(absent) +
                              ") is not; set both or neither, or start the program with kolorun");
    }
    if (integer(index) >= integer(total)) {
      return invalid_argument("option " + std::string(index) + " = " + text(index) +
                              " must be less than " + std::string(total) + " = " + text(total) +
                              " (" + variable_of(index) + ", " + variable_of(total) + ")");
    }
  }
  if (integer("local_size") > integer("size")) {
    return invalid_argument("option local_size = " + text("local_size") +
                            " must not be above size = " + text("size") +
                            " (KOLO_LOCAL_SIZE, KOLO_SIZE)");
  }
  return Status::ok();
}

bool Config::is_set(std::string_view key) const {
  return set_.contains(key) || environment_.contains(key);
}

std::string Config::text(std::string_view key) const {
  if (const auto found = set_.find(key); found != set_.end()) return found->second;
  if (const auto found = environment_.find(key); found != environment_.end()) return found->second;
  const OptionRow* row = find_row(key);
  KOLO_CHECK(row != nullptr);
  return std::string(row->default_value);
}

std::int64_t Config::integer(std::string_view key) const {
  const auto value = parse_integer(text(key));
  KOLO_CHECK(value.has_value());
  return *value;
}

bool Config::flag(std::string_view key) const {
  const auto value = parse_flag(text(key));
  KOLO_CHECK(value.has_value());
  return *value;
}

}  // namespace kolo::internal
