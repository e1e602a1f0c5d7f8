// How ranks of kolorun get a place in MPI's world, while staying children of the agent.
//
// The agent starts mpiexec.hydra with as many donors (this program again) as there are ranks. A
// donor hands the socket and the variables that mpiexec has given it to the agent, which starts a
// rank with them; then it waits until the agent lets it go. So output, signals and exit codes are
// kolorun's as ever, and mpiexec does what MPI needs of it.
//
// One thread: that of the io_context.
#pragma once

#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "launcher/rank_environment.h"

namespace kolo::internal {

inline constexpr char kMpiexec[] = "mpiexec.hydra";

// Whether ranks with this environment use MPI as a road: KOLO_TRANSPORT is mpi or shm+mpi.
[[nodiscard]] bool wants_mpi(const Environment& environment);

// What a donor has of mpiexec. The socket's number is not in `variables`.
struct Donation {
  int rank = -1;
  Environment variables;
  UniqueFd socket;
};

// "NAME=value" entries with a zero byte behind each, as a donor sends them. Of these only MPI's own
// are taken. INVALID_ARGUMENT without a rank from 0 to size - 1.
Result<Donation> read_donation(std::string_view bytes, int size);

class PmiDonors {
 public:
  struct Events {
    std::function<void(std::vector<Donation>)> ready;  // one for each rank, in rank order
    std::function<void(const std::string&)> failed;    // before that; once
  };

  PmiDonors(boost::asio::io_context& io, int size, Events events);
  PmiDonors(const PmiDonors&) = delete;
  PmiDonors& operator=(const PmiDonors&) = delete;
  ~PmiDonors();  // kills what is left

  Status start(const Environment& environment);
  // Lets the donors end, and mpiexec with them.
  void release();
  // To be called when a child has ended, and again until it is true after release().
  bool is_gone(Nanos now);

 private:
  struct Donor;
  void accept_more();
  void take(Donor& donor);
  void read_last_words();
  void fail(const std::string& why);

  boost::asio::io_context& io_;
  const int size_;
  Events events_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::posix::stream_descriptor words_;
  std::vector<std::unique_ptr<Donor>> donors_;
  std::vector<Donation> donations_;  // by rank
  int missing_;
  pid_t mpiexec_ = 0;
  bool ended_ = false;
  bool told_ = false;  // ready or failed
  Nanos released_at_{};
  std::string last_words_;
  std::array<char, 1024> buffer_{};
};

// The donor's whole life. `address`: the agent's. The exit code.
int run_pmi_donor(const std::string& address, const Environment& environment);

}  // namespace kolo::internal
