#include "ops/cuda/launch_thread.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace kolo::internal::cuda {
namespace {

constexpr Nanos kBetweenGlances = 100ms;  // of who waits for a call, at whether it is refused

// Work that somebody waits for.
class Call final : public Task {
 public:
  explicit Call(std::function<Status()> work) : work_(std::move(work)) {}

 private:
  Result<EventRef> launch() override {
    KOLO_RETURN_IF_ERROR(work_());
    return EventRef();
  }
  const std::function<Status()> work_;
};

}  // namespace

LaunchThread::LaunchThread(const Runtime& runtime, Nanos between_looks,
                           std::function<void()> notify)
    : runtime_(runtime), between_looks_(between_looks), notify_(std::move(notify)) {}

// With the lock held.
Status LaunchThread::start() {
  if (stopping_) return aborted("the context has been shut down already");
  if (thread_.joinable()) return Status::ok();
  try {
    thread_ = std::thread([this] { run(); });
    return Status::ok();
  } catch (const std::system_error& error) {
    return resource_error(std::string("cannot start kolo's thread for GPUs: ") + error.what() +
                          "; raise the limit of processes (ulimit -u), or the container's");
  }
}

// With the lock held.
void LaunchThread::append(Task& task) {
  KOLO_CHECK(thread_.joinable() && task.is_idle());
  task.set_phase(Task::Phase::kPosted);
  under_way_.fetch_add(1, std::memory_order_relaxed);
  tasks_.push_back(&task);
  changed_.notify_all();
}

void LaunchThread::post(Task& task) {
  const std::lock_guard lock(mutex_);
  append(task);
}

Status LaunchThread::call(std::function<Status()> work) {
  const auto task = std::make_shared<Call>(std::move(work));
  std::unique_lock lock(mutex_);
  KOLO_RETURN_IF_ERROR(start());
  append(*task);
  const auto is_over = [&] { return task->phase() == Task::Phase::kEnded; };
  while (!ended_.wait_for(lock, kBetweenGlances, is_over)) {
    if (refused_.is_ok() || !is_stuck(refusal_patience_)) continue;
    if (withdraw(*task)) return refused_;
    if (launching_ != task.get()) continue;
    launching_ = nullptr;
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    left_calls_.push_back(task);
    return refused_;
  }
  return task->status();
}

void LaunchThread::poke() {
  {
    const std::lock_guard lock(mutex_);
    poked_ = true;
  }
  changed_.notify_all();
}

void LaunchThread::errand(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    errands_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void LaunchThread::do_errands() {
  std::vector<std::function<void()>> errands;
  {
    const std::lock_guard lock(mutex_);
    errands.swap(errands_);
  }
  for (const auto& work : errands) work();
}

void LaunchThread::sleep(Nanos limit) {
  {
    std::unique_lock lock(mutex_);
    mark_busy(false);
    changed_.wait_for(lock, limit, [&] { return poked_; });
    poked_ = false;
    mark_busy(true);
  }
  look();
}

// ---- Who does not wait for ever -----------------------------------------------------------------

// With the lock held, as the next two. It had not begun.
bool LaunchThread::withdraw(Task& task) {
  if (std::erase(tasks_, &task) == 0) return false;
  under_way_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void LaunchThread::mark_busy(bool is_busy) { busy_since_ = is_busy ? SteadyClock().now() : kNever; }

bool LaunchThread::is_stuck(Nanos patience) const {
  return busy_since_ != kNever && SteadyClock().now() - busy_since_ > patience;
}

LaunchThread::TakenBack LaunchThread::take_back(Task& task, const Status& why, Nanos patience) {
  const std::lock_guard lock(mutex_);
  if (task.is_idle()) return TakenBack::kNo;
  if (withdraw(task)) {
    task.end(why);
    return TakenBack::kYes;
  }
  if (!is_stuck(patience)) return TakenBack::kNo;
  if (launching_ == &task) {
    launching_ = nullptr;
    under_way_.fetch_sub(1, std::memory_order_relaxed);
  }
  return TakenBack::kLeftBehind;
}

void LaunchThread::refuse(const Status& why, Nanos patience) {
  const std::lock_guard lock(mutex_);
  if (!refused_.is_ok()) return;
  refused_ = why;
  refusal_patience_ = patience;
}

bool LaunchThread::stop(const std::function<void()>& last, Nanos patience) {
  std::unique_lock lock(mutex_);
  if (std::exchange(stopping_, true)) return true;
  last_ = last;
  changed_.notify_all();
  if (!thread_.joinable()) return true;
  const Nanos asked = SteadyClock().now();
  while (!has_ended_) {
    ended_.wait_for(lock, kBetweenGlances);
    const Nanos since = busy_since_ == kNever ? asked : busy_since_;
    if (has_ended_ || SteadyClock().now() - since <= patience) continue;
    leave_behind();
    return false;
  }
  lock.unlock();
  thread_.join();
  return true;
}

// With the lock held.
void LaunchThread::leave_behind() {
  last_ = nullptr;
  thread_.detach();
  const std::lock_guard lock(notify_mutex_);
  notify_ = nullptr;
}

void LaunchThread::tell() {
  const std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

bool LaunchThread::has_been_left(Task& task) {
  const std::lock_guard lock(mutex_);
  return std::exchange(launching_, nullptr) != &task;
}

// ---- On the launch thread -----------------------------------------------------------------------

Device* LaunchThread::find(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(number);
  return found == devices_.end() ? nullptr : found->second.get();
}

Result<Device*> LaunchThread::device(int number) {
  if (Device* const open = find(number)) {
    open->make_current();
    return open;
  }
  auto opened = Device::open(runtime_, number, [this] {
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    tell();
  });
  if (!opened) return opened.status();
  const std::lock_guard lock(mutex_);
  return (devices_[number] = *std::move(opened)).get();
}

// What it throws is its own failure.
void LaunchThread::launch(Task& task) {
  Result<EventRef> done = EventRef();
  try {
    done = task.launch();
  } catch (const std::bad_alloc&) {
    done = resource_error("no memory; free some, and start again");
  } catch (const std::exception& error) {
    done = Status(StatusCode::kInternal, error.what());
  }
  if (has_been_left(task)) return;
  if (done && *done) {
    task.done_ = *done;
    task.launched(task.done_);
    Device* const device = find(done->device());
    task.set_phase(Task::Phase::kLaunched);
    tell();
    return device->finisher().push(task);
  }
  if (Device* const device = find_unrecorded(); device != nullptr && !done) {
    task.drained_ = device->stream();
    task.failure_ = done.status();
    return device->finisher().push(task);
  }
  if (done) task.launched({});
  {
    const std::lock_guard lock(mutex_);
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    task.end(done.status());
  }
  ended_.notify_all();
  tell();
}

void LaunchThread::watch(Watched& watched) {
  watched_.push_back(&watched);
  for (const DeviceMemory& memory : memory_) watched.attach(memory);
}

void LaunchThread::announce(const DeviceMemory& memory) {
  memory_.push_back(memory);
  for (Watched* const watched : watched_) watched->attach(memory);
}

void LaunchThread::withdraw(void* address) {
  const auto found = std::ranges::find(memory_, address, &DeviceMemory::address);
  if (found == memory_.end()) return;
  for (Watched* const watched : watched_) watched->detach(*found);
  memory_.erase(found);
}

Device* LaunchThread::find_unrecorded() {
  for (auto& [number, device] : devices_) {
    if (device->take_unrecorded()) return device.get();
  }
  return nullptr;
}

// From the end, as one may leave while it is looked at.
void LaunchThread::look() {
  for (std::size_t i = watched_.size(); i > 0; --i) watched_[i - 1]->look();
}

// False: there is none any more.
bool LaunchThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  mark_busy(false);
  const auto awake = [&] { return poked_ || stopping_ || !tasks_.empty() || !errands_.empty(); };
  if (under_way_.load(std::memory_order_relaxed) > 0) {
    changed_.wait_for(lock, between_looks_, awake);
  } else {
    changed_.wait(lock, awake);
  }
  poked_ = false;
  mark_busy(true);
  return !stopping_ || !tasks_.empty();
}

Task* LaunchThread::next_task() {
  const std::lock_guard lock(mutex_);
  if (tasks_.empty()) return nullptr;
  launching_ = tasks_.front();
  tasks_.pop_front();
  mark_busy(true);
  return launching_;
}

void LaunchThread::run() {
  relax_capture(runtime_);
  while (wait_for_work()) {
    look();
    do_errands();
    if (Task* const task = next_task()) launch(*task);
  }
  std::function<void()> last;
  {
    const std::lock_guard lock(mutex_);
    last.swap(last_);
  }
  if (last) last();
  for (auto& [number, device] : devices_) {
    device->close();
    retired_.push_back(device->take_events());
    const std::lock_guard lock(mutex_);
    mark_busy(true);
  }
  const std::lock_guard lock(mutex_);
  devices_.clear();
  has_ended_ = true;
  ended_.notify_all();
}

}  // namespace kolo::internal::cuda
