#include "transport/secret_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"

namespace kolo::internal {

Result<std::string> read_secret_file(const std::string& path) {
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
  const std::string_view all(text.data(), static_cast<std::size_t>(bytes));
  std::string secret(all.substr(0, all.find('\n')));
  OPENSSL_cleanse(text.data(), text.size());
  return secret;
}

}  // namespace kolo::internal
