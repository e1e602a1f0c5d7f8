// PmiClient: this rank's talk with the MPI launcher that started it, without MPI: a key-value store
// that all ranks of the job share, and a barrier.
//
// The socket is the process's one, shared with MPI, should the process use that: a request and its
// answer are one exchange, so both may take turns; they must not talk at the same moment, which MPI
// only does in MPI_Init, MPI_Finalize and the like. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "transport/pmi/pmi_wire.h"

namespace kolo::internal {

class PmiClient {
 public:
  // Greets the launcher at `fd`, which stays open when this object goes. From the first word on the
  // launcher expects a farewell, or it ends the job when this process ends. `limit`: for everything
  // here together.
  // Errors: INVALID_ARGUMENT (no launcher there), TIMED_OUT, RESOURCE (it hung up).
  static Result<PmiClient> greet(int fd, Nanos limit);

  // The value under `key`, nothing if there is none.
  Result<std::optional<std::string>> get(std::string_view key);
  Status put(std::string_view key, std::string_view value);
  // Blocks until all ranks of the job are here; what they have put can then be got.
  Status barrier();
  // Says farewell at the process's exit, unless MPI has said it by then. Once per process: an exit
  // runs first what was asked for last, and kolo's module may have asked for MPI_Finalize, which
  // needs the launcher.
  Status promise_farewell();

 private:
  PmiClient(int fd, Nanos deadline) : fd_(fd), deadline_(deadline) {}
  Result<PmiLine> ask(const std::string& request, std::string_view answer);
  Status send(const std::string& line);
  Result<std::string> receive();

  int fd_;
  Nanos deadline_;
  std::string store_;  // its name
  std::size_t max_key_ = 0;
  std::size_t max_value_ = 0;
};

}  // namespace kolo::internal
