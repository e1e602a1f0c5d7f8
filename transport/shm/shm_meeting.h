// ShmMeeting: how the ranks of one host exchange descriptors and come to one verdict.
//
//   1. Rank 0 listens at the place, the others connect; both sides prove the job's secret.
//   2. Each sends {memory, bell, nonce}, or why it has none. Rank 0 waits for all.
//   3. Rank 0 sends everybody's to everybody. If one had none, it sends the verdict instead.
//   4. Each maps the others' memory and says whether it could.
//   5. Rank 0 sends the verdict.
//
// One thread; blocks up to the options' limits.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/crypto.h"
#include "transport/shm/shm_window.h"

namespace kolo::internal {

// What a rank shows to the others.
struct Share {
  UniqueFd memory;
  UniqueFd bell;
  Digest nonce{};
};

class ShmMeeting {
 public:
  // Before anything else is made, so that a rank without memory can still say so.
  static Result<std::unique_ptr<ShmMeeting>> open(const ShmOptions& options);
  virtual ~ShmMeeting() = default;

  // Steps 1 to 3: brings this rank's share, gets those of all (its own entry is empty).
  virtual Result<std::vector<Share>> exchange(Result<Share> own) = 0;
  // Steps 4 and 5: the first error of any rank, or OK on all.
  virtual Status agree(const Status& own) = 0;
};

}  // namespace kolo::internal
