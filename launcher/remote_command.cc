#include "launcher/remote_command.h"

#include <algorithm>

namespace kolo::internal {

std::string shell_quote(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

Road road_to(const Host& host, const LaunchOptions& options, std::string_view own_name) {
  if (options.remote == Remote::kFork) return Road::kFork;
  if (!options.remote_command.empty()) {
    // The command may lead to another name space of this machine, where its name is the same.
    return names_this_machine(host.name, "") ? Road::kFork : Road::kCommand;
  }
  if (options.remote == Remote::kSsh) return Road::kSsh;
  return names_this_machine(host.name, own_name) ? Road::kFork : Road::kSsh;
}

std::vector<std::string> agent_command(Road road, const Host& host, const LaunchOptions& options,
                                       const std::string& agent) {
  if (road == Road::kFork) return {agent, "--agent"};
  std::vector<std::string> words;
  if (road == Road::kCommand) {
    words = options.remote_command;
    words.insert(words.end(), {host.name, agent, "--agent"});
    return words;
  }
  // BatchMode: never ask for a password; -T: no terminal, whose driver would change our bytes.
  words = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"};
  if (!options.ssh_port.empty()) words.insert(words.end(), {"-p", options.ssh_port});
  if (!options.ssh_identity.empty()) words.insert(words.end(), {"-i", options.ssh_identity});
  words.insert(words.end(), {host.name, "exec " + shell_quote(agent) + " --agent"});
  return words;
}

}  // namespace kolo::internal
