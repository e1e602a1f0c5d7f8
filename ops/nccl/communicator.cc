#include "ops/nccl/communicator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace kolo::internal::nccl {
namespace {

constexpr Nanos kShortestPause = 50us;
constexpr Nanos kLongestPause = 5ms;

// Another rank's end looks like this; who ended says kolo's own news, a moment later.
bool may_be_of_a_peer(Error error) { return error == kRemoteError || error == kSystemError; }

}  // namespace

void Communicator::close() {
  if (handle_ == nullptr) return;
  if (!doomed().is_ok()) {
    break_off();
    return;
  }
  unwatch();
  Error error = library_.ncclCommFinalize(handle_);
  const Nanos deadline = clock_.now() + limits_.to_close;
  while (error == kInProgress && clock_.now() < deadline && doomed().is_ok()) {
    thread_.sleep(kShortestPause);
    error = ask();
  }
  if (error == kSuccess) {
    library_.ncclCommDestroy(std::exchange(handle_, nullptr));
  } else {
    library_.ncclCommAbort(std::exchange(handle_, nullptr));
  }
}

void Communicator::watch() {
  thread_.watch(*this);
  watched_ = true;
}

void Communicator::unwatch() {
  if (watched_) thread_.unwatch(*this);
  watched_ = false;
  for (const auto& [address, registration] : registered_) {
    library_.ncclCommDeregister(handle_, registration);
  }
  registered_.clear();
}

void Communicator::break_off() {
  unwatch();
  if (handle_ != nullptr) library_.ncclCommAbort(std::exchange(handle_, nullptr));
}

// The state that NCCL says the communicator is in.
Error Communicator::ask() const {
  Error error = kSuccess;
  const Error asked = library_.ncclCommGetAsyncError(handle_, &error);
  return asked == kSuccess ? error : asked;
}

// Whether an error is the cause: another rank's end may explain it better, and is told soon.
bool Communicator::is_believed(Error error) {
  if (!may_be_of_a_peer(error)) return true;
  if (suspect_since_ == kNever) suspect_since_ = clock_.now();
  return clock_.now() - suspect_since_ >= limits_.grace;
}

Status Communicator::fail(Error error, const char* call) {
  const Status status = library_.status_of(error, call, handle_);
  doom({StatusCode::kNcclError,
        status.text() + ". NCCL_DEBUG=INFO tells more; KOLO_CUDA=staged goes without NCCL"});
  return doomed();
}

Status Communicator::open(const UniqueId& id, int size, int rank) {
  KOLO_RETURN_IF_ERROR(doomed());
  CommConfig config;
  config.blocking = 0;
  Error error = library_.ncclCommInitRankConfig(&handle_, size, id, rank, &config);
  Status status =
      settle(error, "ncclCommInitRankConfig", limits_.to_open, "a rank has not come to it");
  if (status) {
    watch();
  } else {
    break_off();
  }
  return status;
}

Status Communicator::settle(Error first, const char* call) {
  return settle(first, call, limits_.to_settle, "a rank is late in it, or stuck");
}

Status Communicator::settle(Error first, const char* call, Nanos limit, const char* suspicion) {
  const Nanos begin = clock_.now();
  Nanos pause = kShortestPause;
  Error error = first;
  while (error != kSuccess) {
    KOLO_RETURN_IF_ERROR(doomed());
    if (error == kInProgress && clock_.now() - begin > limit) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
      doom(timed_out(std::string(call) + " is still in progress after " +
                     std::to_string(seconds.count()) + " s (KOLO_START_TIMEOUT_MS): " + suspicion +
                     ", or cannot be reached from here. NCCL_DEBUG=INFO tells which"));
      return doomed();
    }
    if (error != kInProgress && is_believed(error)) return fail(error, call);
    thread_.sleep(pause);
    pause = std::min(2 * pause, kLongestPause);
    if (error == kInProgress && doomed().is_ok()) error = ask();
  }
  return doomed();
}

void Communicator::doom(Status why) {
  {
    const std::lock_guard lock(mutex_);
    if (!doom_.is_ok()) return;
    doom_ = std::move(why);
  }
  thread_.poke();
}

Status Communicator::doomed() const {
  const std::lock_guard lock(mutex_);
  return doom_;
}

void Communicator::look() {
  if (handle_ == nullptr) return;
  if (!doomed().is_ok()) return break_off();
  const Error error = ask();
  if (error == kSuccess || error == kInProgress || !is_believed(error)) return;
  static_cast<void>(fail(error, "an operation of NCCL").is_ok());
  break_off();
}

// A hint: without it NCCL copies through buffers of its own.
void Communicator::attach(const cuda::DeviceMemory& memory) {
  const bool can = library_.ncclCommRegister != nullptr && library_.ncclMemAlloc != nullptr;
  if (!can || memory.device != device_ || handle_ == nullptr) return;
  void* registration = nullptr;
  const Error error =
      library_.ncclCommRegister(handle_, memory.address, memory.bytes, &registration);
  if (error == kSuccess && registration != nullptr) registered_[memory.address] = registration;
}

void Communicator::detach(const cuda::DeviceMemory& memory) {
  const auto node = registered_.extract(memory.address);
  if (!node.empty() && handle_ != nullptr) library_.ncclCommDeregister(handle_, node.mapped());
}

Status Communicator::shrink_into(Communicator& fresh, std::span<const int> gone, const UniqueId& id,
                                 int size, int rank, const Status& why) {
  const bool whole = handle_ != nullptr && doomed().is_ok();
  if (!whole || library_.ncclCommShrink == nullptr) {
    doom(why);
    break_off();
    return fresh.open(id, size, rank);
  }
  unwatch();  // nobody else ends it meanwhile
  std::vector<int> excluded(gone.begin(), gone.end());
  CommConfig config;
  config.blocking = 0;
  const Error error =
      library_.ncclCommShrink(handle_, excluded.data(), static_cast<int>(excluded.size()),
                              &fresh.handle_, &config, kShrinkAbort);
  Status status =
      fresh.settle(error, "ncclCommShrink", limits_.to_open, "a rank has not come to it");
  if (status) {
    fresh.watch();
  } else {
    fresh.break_off();
  }
  doom(why);
  break_off();
  return status;
}

}  // namespace kolo::internal::nccl
