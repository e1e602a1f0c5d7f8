// How ranks that an MPI launcher started (mpiexec -n 4 ./trainer) come to meet: rank 0 opens a
// rendezvous, makes the job's secret, and puts both into the launcher's store, which only the ranks
// of this job can read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

struct PmiPlace {
  int local_rank = 0;
  int local_size = 1;
  int host_index = 0;
  int host_count = 1;
  std::vector<std::string> addresses;        // for this rank to listen on
  std::string endpoint;                      // of the rendezvous
  JobIdentity identity;                      // with the secret
  std::unique_ptr<RendezvousServer> server;  // on rank 0; lives as long as its context
};

// The descriptor in a meeting place "pmi:6", which base/options.cc makes of PMI_FD.
[[nodiscard]] std::optional<int> pmi_fd_of(const std::string& rendezvous);

// Blocks until all ranks of the job are here, at most `limit`. `addresses`: those of this host to
// listen on; empty to choose: loopback in a job on one host, else every address that others could
// reach.
Result<PmiPlace> meet_by_pmi(int fd, int rank, int size, std::vector<std::string> addresses,
                             Nanos limit);

}  // namespace kolo::internal
