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

// Work that somebody waits for.
class Call final : public Task {
 public:
  explicit Call(const std::function<Status()>& work) : work_(work) {}

 private:
  Result<EventRef> launch() override {
    KOLO_RETURN_IF_ERROR(work_());
    return EventRef();
  }
  const std::function<Status()>& work_;
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

Status LaunchThread::call(const std::function<Status()>& work) {
  Call task(work);
  std::unique_lock lock(mutex_);
  KOLO_RETURN_IF_ERROR(start());
  append(task);
  ended_.wait(lock, [&] { return task.phase() == Task::Phase::kEnded; });
  return task.status();
}

void LaunchThread::poke() {
  {
    const std::lock_guard lock(mutex_);
    poked_ = true;
  }
  changed_.notify_all();
}

void LaunchThread::sleep(Nanos limit) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return poked_; });
    poked_ = false;
  }
  look();
}

void LaunchThread::stop(const std::function<void()>& last) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    last_ = last;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

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
    notify_();
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
  if (done && *done) {
    task.done_ = *done;
    task.launched(task.done_);
    Device* const device = find(done->device());
    task.set_phase(Task::Phase::kLaunched);
    notify_();
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
  notify_();
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

void LaunchThread::run() {
  relax_capture(runtime_);
  while (true) {
    Task* task = nullptr;
    {
      std::unique_lock lock(mutex_);
      const auto awake = [&] { return poked_ || stopping_ || !tasks_.empty(); };
      if (under_way_.load(std::memory_order_relaxed) > 0) {
        changed_.wait_for(lock, between_looks_, awake);
      } else {
        changed_.wait(lock, awake);
      }
      poked_ = false;
      if (tasks_.empty() && stopping_) break;
      if (!tasks_.empty()) {
        task = tasks_.front();
        tasks_.pop_front();
      }
    }
    look();
    if (task != nullptr) launch(*task);
  }
  if (last_) last_();
  for (auto& [number, device] : devices_) {
    device->close();
    retired_.push_back(device->take_events());
  }
  const std::lock_guard lock(mutex_);
  devices_.clear();
}

}  // namespace kolo::internal::cuda
