// MpiWorld: MPI as kolo sees it in this process: the module of the flavour, and a communicator of
// kolo's own over the ranks of MPI_COMM_WORLD, whose ranks are those of the job.
//
// Shared by the fabric and its channels; goes with the last of them. One thread at a time, beside
// which the trainer may use MPI as it likes. What MPI may still write to when a channel goes is
// kept here until MPI lets go of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/mpi/mpi_module.h"

namespace kolo::internal {

// The module's file beside this library; empty if there is none. Opens nothing.
[[nodiscard]] std::string find_mpi_module();

class MpiWorld {
 public:
  // Opens the module and initialises MPI, if the trainer has not; checks that its world is that of
  // the job. Blocks until all ranks have initialised MPI. Before the ranks meet: who fails here
  // must not leave the others in duplicate(). `module_path`: empty for the one beside this library.
  // Errors: UNSUPPORTED (no module, another MPI in this process), INVALID_ARGUMENT (thread level,
  // finalised, launcher and library do not fit).
  static Result<std::shared_ptr<MpiWorld>> start(int rank, int size,
                                                 const std::string& module_path = "");
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld();

  // Makes kolo's own communicator. Blocks until all ranks call it.
  Status duplicate();

  [[nodiscard]] const kolo_mpi_module_table& calls() const { return calls_; }
  [[nodiscard]] kolo_mpi_handle communicator() const { return communicator_; }
  [[nodiscard]] int largest_tag() const { return world_.largest_tag; }
  // "MPICH Version: 4.0.2"
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::string words_of(int error) const;
  [[nodiscard]] bool usable() const { return calls_.usable() != 0; }

  // A channel has not ended well, so a rank may be dead: the communicator is not given back, and
  // MPI is not finalised at the process's exit, as both would wait for it.
  void forsake() { forsaken_ = true; }

  // A request that could not be ended yet, and the memory (or null) that it uses.
  void adopt(kolo_mpi_handle request, std::shared_ptr<std::byte[]> memory);

 private:
  struct Orphan {
    kolo_mpi_handle request;
    std::shared_ptr<std::byte[]> memory;
  };

  explicit MpiWorld(const kolo_mpi_module_table& calls) : calls_(calls) {}
  [[nodiscard]] bool has_ended(Orphan& orphan) const;
  [[nodiscard]] Status check_start(int result) const;
  [[nodiscard]] Status check_place(int rank, int size) const;

  const kolo_mpi_module_table& calls_;
  kolo_mpi_world world_{};
  kolo_mpi_handle communicator_{};
  bool has_communicator_ = false;
  bool forsaken_ = false;
  std::vector<Orphan> orphans_;
};

}  // namespace kolo::internal
