#include "launcher/rank_environment.h"

#include <algorithm>
#include <map>

namespace kolo::internal {
namespace {

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=', 1)); }

// Belongs to a machine or a login, and would be wrong elsewhere.
bool is_host_bound(std::string_view name) {
  constexpr std::string_view kNames[] = {"HOME",
                                         "USER",
                                         "LOGNAME",
                                         "SHELL",
                                         "MAIL",
                                         "PWD",
                                         "OLDPWD",
                                         "SHLVL",
                                         "_",
                                         "HOSTNAME",
                                         "TERM",
                                         "DISPLAY",
                                         "WAYLAND_DISPLAY",
                                         "XAUTHORITY",
                                         "TMPDIR",
                                         "DBUS_SESSION_BUS_ADDRESS"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         name.starts_with("SSH_") || name.starts_with("XDG_");
}

// Says who a rank of an outer job is; a rank of ours must not believe it.
bool is_outer_identity(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "KOLO_LAUNCHER",    "KOLO_RANK",      "KOLO_SIZE",       "KOLO_LOCAL_RANK", "KOLO_LOCAL_SIZE",
      "KOLO_HOST_INDEX",  "KOLO_HOST_NAME", "KOLO_HOST_COUNT", "KOLO_RENDEZVOUS", "KOLO_SECRET",
      "KOLO_SECRET_FILE", "KOLO_JOB",       "KOLO_ADDRESSES"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string variable_of_option(std::string_view key) {
  std::string name = "KOLO_";
  for (const char c : key) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::string without_user(const std::string& host) {
  const std::size_t at = host.find('@');
  return at == std::string::npos ? host : host.substr(at + 1);
}

}  // namespace

bool is_valid_entry(std::string_view entry) {
  return !entry.empty() && entry.find('=', 1) != std::string_view::npos &&
         entry.find('\0') == std::string_view::npos;
}

void set_variable(Environment& environment, std::string_view name, std::string_view value) {
  std::string entry = std::string(name) + "=" + std::string(value);
  const auto same = std::find_if(environment.begin(), environment.end(),
                                 [&](const auto& e) { return name_of(e) == name; });
  if (same == environment.end())
    environment.push_back(std::move(entry));
  else
    *same = std::move(entry);
}

std::optional<std::string_view> find_variable(const Environment& environment,
                                              std::string_view name) {
  for (const std::string_view entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

SharedEnvironment shared_environment(const Environment& own, const LaunchOptions& options,
                                     bool remote) {
  SharedEnvironment shared;
  for (const std::string& entry : own) {
    if (!remote || !is_valid_entry(entry) || is_outer_identity(name_of(entry))) continue;
    if (is_host_bound(name_of(entry)))
      shared.left_out.emplace_back(name_of(entry));
    else
      shared.entries.push_back(entry);
  }
  for (const std::string& name : options.exports) {
    if (const auto value = find_variable(own, name))
      set_variable(shared.entries, name, *value);
    else
      shared.unset.push_back(name);
  }
  for (const auto& [key, value] : options.settings) {
    set_variable(shared.entries, variable_of_option(key), value);
  }
  for (const auto& [name, value] : options.assignments) {
    set_variable(shared.entries, name, value);
  }
  return shared;
}

Environment rank_identity(const Placement& placement, std::size_t host_index, int local_rank,
                          const JobFacts& facts, std::string_view addresses) {
  const Placement::OnHost& here = placement.hosts[host_index];
  const std::string rank = std::to_string(here.first_rank + local_rank);
  const std::string size = std::to_string(placement.size);
  const std::string local = std::to_string(local_rank);
  const std::string local_size = std::to_string(here.rank_count);
  const auto entry = [](const char* name, std::string_view value) {
    return std::string(name) + "=" + std::string(value);
  };
  return {entry("KOLO_LAUNCHER", "kolorun"),
          entry("KOLO_RANK", rank),
          entry("KOLO_SIZE", size),
          entry("KOLO_LOCAL_RANK", local),
          entry("KOLO_LOCAL_SIZE", local_size),
          entry("KOLO_HOST_INDEX", std::to_string(host_index)),
          entry("KOLO_HOST_NAME", without_user(here.host.name)),
          entry("KOLO_HOST_COUNT", std::to_string(placement.hosts.size())),
          entry("KOLO_JOB", facts.job),
          entry("KOLO_ADDRESSES", addresses),
          entry("RANK", rank),
          entry("WORLD_SIZE", size),
          entry("LOCAL_RANK", local),
          entry("LOCAL_WORLD_SIZE", local_size)};
}

Environment meeting_variables(std::string_view endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  return {"KOLO_RENDEZVOUS=" + std::string(endpoint),
          "MASTER_ADDR=" + std::string(endpoint.substr(0, colon)),
          "MASTER_PORT=" + std::string(endpoint.substr(colon + 1))};
}

Environment compose(const Environment& inherited, const std::vector<const Environment*>& layers) {
  Environment result;
  std::map<std::string, std::size_t, std::less<>> places;
  const auto put = [&](const std::string& entry) {
    const auto [place, is_new] = places.try_emplace(std::string(name_of(entry)), result.size());
    if (is_new)
      result.push_back(entry);
    else
      result[place->second] = entry;
  };
  for (const std::string& entry : inherited) {
    if (is_valid_entry(entry) && !is_outer_identity(name_of(entry))) put(entry);
  }
  for (const Environment* layer : layers) {
    for (const std::string& entry : *layer) put(entry);
  }
  return result;
}

}  // namespace kolo::internal
