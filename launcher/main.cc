#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "launcher/kolorun.h"
#include "launcher/spawn.h"
#include "launcher/verdict.h"

extern char** environ;  // NOLINT: handed on to the ranks as a whole, never read for kolo's own ends

int main(int argc, char** argv) {
  // Three descriptors that are open, whatever the caller closed: ours must not take their places.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd > 2) {
      ::close(fd);
      break;
    }
  }
  kolo::internal::raise_descriptor_limit();
  ::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error value of write()
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  try {
    return kolo::internal::kolorun(std::vector<std::string>(argv + 1, argv + argc),
                                   std::move(environment));
  } catch (const std::exception& error) {  // out of memory, or a failed check
    std::fprintf(stderr, "kolorun: internal error: %s\n", error.what());
    return kolo::internal::kExitOwnFailure;
  }
}
