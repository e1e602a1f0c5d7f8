// Any entries as the environment of a rank, as single options, as what kolorun hands to its ranks,
// and as the file of the secret. What is accepted lies within the table's bounds; what is not, is
// an error with a text. The first byte picks the reader; entries are lines.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/unique_fd.h"
#include "launcher/rank_environment.h"
#include "transport/secret_file.h"

using namespace kolo::internal;

extern char** environ;  // NOLINT: what load_environment() reads

namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void check_bounds(const Config& config) {
  for (const OptionRow& row : Config::table()) {
    if (!config.is_set(row.key)) continue;  // defaults do not change
    const std::string value = config.text(row.key);
    if (row.type == OptionRow::Type::kInteger) {
      const std::int64_t number = config.integer(row.key);
      if (number < row.min || number > row.max) std::abort();
    } else if (row.type == OptionRow::Type::kFlag) {
      static_cast<void>(config.flag(row.key));
    } else if (row.type == OptionRow::Type::kChoice) {
      const std::string choices = "|" + std::string(row.choices) + "|";
      if (choices.find("|" + value + "|") == std::string::npos) std::abort();
    }
  }
}

void check_environment(const std::vector<std::string>& lines) {
  std::vector<std::string> entries;
  for (const std::string& line : lines) entries.push_back(line.substr(0, line.find('\0')));
  std::vector<char*> pointers;
  for (std::string& entry : entries) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  char** const own = std::exchange(environ, pointers.data());
  Config config;
  std::vector<std::string> unknown;
  const Status status = config.load_environment(unknown);
  environ = own;
  if (!status) {
    if (status.text().empty()) std::abort();
    return;
  }
  check_bounds(config);
  // Never a silent rank 0 of 1 where only half was said.
  if (config.is_set("rank") != config.is_set("size")) std::abort();
  if (config.integer("rank") >= config.integer("size")) std::abort();
}

void check_options(std::vector<std::string> lines) {
  lines.resize(std::min<std::size_t>(lines.size(), 8));  // a wrong key is compared with all
  Config config;
  for (const std::string& line : lines) {
    const std::size_t equal = std::min(line.find('='), line.size());
    const std::string_view value = std::string_view(line).substr(std::min(equal + 1, line.size()));
    const Status status = config.set(line.substr(0, equal), value);
    if (!status && status.text().empty()) std::abort();
  }
  check_bounds(config);
}

void check_handing_on(const std::vector<std::string>& lines) {
  const SharedEnvironment shared = shared_environment(lines, {}, true);
  const Environment all = compose(lines, {&shared.entries});
  for (const std::string& entry : shared.entries) {
    if (!is_valid_entry(entry)) std::abort();
  }
  std::vector<std::string_view> names;
  for (const std::string& entry : all)
    names.push_back(std::string_view(entry).substr(0, entry.find('=')));
  for (const char* identity : {"KOLO_RANK", "KOLO_SECRET", "RANK", "PMI_FD"}) {
    const bool given = find_variable(shared.entries, identity).has_value();
    if (!given && std::ranges::count(names, identity) > 0) std::abort();
  }
}

void check_secret(std::string_view text) {
  static const UniqueFd file(::memfd_create("secret", MFD_CLOEXEC));
  static const bool mine = ::fchmod(file.get(), 0600) == 0;
  if (!mine || ::ftruncate(file.get(), 0) != 0) std::abort();
  if (::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    std::abort();
  }
  const auto secret = read_secret_file("/proc/self/fd/" + std::to_string(file.get()));
  if (!secret && secret.status().text().empty()) std::abort();
  if (!secret) return;
  const std::string_view line = *secret;
  if (line.size() < 16 || line.find_first_of("\n ") != std::string_view::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: check_environment(lines_of(text)); break;
    case 1: check_options(lines_of(text)); break;
    case 2: check_handing_on(lines_of(text)); break;
    default: check_secret(text);
  }
  return 0;
}
