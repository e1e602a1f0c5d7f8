#include "transport/secret_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

// Why it is no secret; empty if it may be one. Says nothing of its bytes.
std::string fault_of(std::string_view line, bool is_cut) {
  if (is_cut) return "has more than 4095 bytes, as no secret has";
  if (line.empty()) return "is empty";
  const bool is_text =
      std::any_of(line.begin(), line.end(), [](unsigned char c) { return c <= ' ' || c >= 127; });
  if (is_text) return "is ordinary text: it has blanks, or bytes that are no letters";
  if (line.size() < kMinSecretBytes) {
    return "has " + std::to_string(line.size()) + " characters, fewer than " +
           std::to_string(kMinSecretBytes);
  }
  return "";
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return invalid_argument("secret_file: cannot take the secret from '" + path + "': " + why);
  };
  // Not blocking: what is planted there may be a pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0) {
    return refused(std::string(std::strerror(errno)) +
                   ". Write one line of at least 16 random characters there, the same for every "
                   "rank");
  }
  if (!S_ISREG(facts.st_mode)) return refused("it is not a regular file");
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0) {
    return refused("it belongs to another user; copy it to a file of your own");
  }
  if ((facts.st_mode & 077) != 0) {
    return refused("others may read or write it; chmod 600 '" + path + "'");
  }
  std::array<char, 4096> text;
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0) return refused(std::strerror(errno));
  std::string_view line(text.data(), static_cast<std::size_t>(bytes));
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string fault = fault_of(line, line.size() == text.size());
  Secret secret(line);
  OPENSSL_cleanse(text.data(), text.size());
  if (!fault.empty()) {
    return refused("its first line " + fault +
                   "; write a random one, the same for every rank: openssl rand -hex 32 > '" +
                   path + "'");
  }
  return secret;
}

}  // namespace kolo::internal
