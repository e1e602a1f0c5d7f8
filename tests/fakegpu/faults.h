// Faults by plan: "function:n:effect[:value]", several separated by commas. At the n-th call (from
// 1; "*" for each) of the function, counted per process, the effect takes place.
//
//   function  a function of the libraries (cudaMalloc, ncclAllReduce), or work in a stream: launch
//             (kernels), copy, memset, collective (all of NCCL's, sends and receives too); comm is
//             another word for collective
//   oom          out of memory: cudaErrorMemoryAllocation, or ncclUnhandledCudaError
//   error[:code] the call fails (default cudaErrorUnknown 999, ncclInternalError 3)
//   sticky[:code] the device is broken from now on (default cudaErrorLaunchFailure 719)
//   delay:us     the call, or the work in its stream, takes that much longer
//   hang         the call does not come back, or the initialisation does not end, until the
//                communicator is aborted, 300 s at most
//   block        the call itself does not come back, whatever happens, 300 s at most: also one that
//                should not block, or aborts
//   never        the collective is stuck in its stream: this rank does not arrive
//   async-error[:code]  the same, and the communicator says so (default ncclRemoteError 6)
//
// "rank-never-arrives" alone is collective:1:never.
//
// Threads: any. Ownership: owns its plan and its counters.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fakegpu {

enum class Effect {
  kNone,
  kOutOfMemory,
  kError,
  kSticky,
  kDelay,
  kHang,
  kBlock,
  kNever,
  kAsyncError
};

struct Fault {
  Effect effect = Effect::kNone;
  long value = 0;  // code or microseconds; 0: the effect's default

  bool is(Effect which) const { return effect == which; }
};

class Faults {
 public:
  // False, and nothing changed, when the text is not a plan.
  bool set(std::string_view text);

  // Counts one call of the function, and says what is planned for it.
  Fault next(std::string_view function);

 private:
  struct Rule {
    std::string function;
    long nth = 0;  // 0: each
    Fault fault;
  };
  static bool parse(std::string_view text, Rule& rule);

  std::mutex mutex_;
  std::vector<Rule> rules_;
  std::map<std::string, long, std::less<>> calls_;
};

inline constexpr long kHangMicroseconds = 300 * 1000 * 1000L;

// Sleeps in small pieces, at most `microseconds`; ends early when `stop` says so.
template <class Stop>
void pause_for(long microseconds, const Stop& stop) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  while (!stop()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(1)));
  }
}

inline void pause_for(long microseconds) {
  pause_for(microseconds, [] { return false; });
}

}  // namespace fakegpu
