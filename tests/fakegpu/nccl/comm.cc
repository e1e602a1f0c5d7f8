#include "tests/fakegpu/nccl/comm.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/fakegpu/nccl/collectives.h"
#include "tests/fakegpu/nccl/library.h"

namespace fakegpu {
namespace {

constexpr int kFirstFactor = 5;  // NCCL's own reductions come before it

// What tells hosts apart, as in the real one.
std::string host_name() {
  if (const char* given = getenv("NCCL_HOSTID")) return given;
  char name[65] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// The switch of 2.30 and newer; older ones do not know it.
bool may_share_gpu() {
  const char* wish = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return wish != nullptr && std::string_view(wish) == "1" &&
         machine().settings.nccl_version >= 23000;
}

}  // namespace

Comm::Comm(Device& device, const Plan& plan) : device_(device), plan_(plan) {
  thread_ = std::thread([this] { run(); });
}

Comm::~Comm() { stop_thread(); }

void Comm::post(Job job) {
  const std::lock_guard lock(mutex_);
  int none = nccl::kSuccess;
  error_.compare_exchange_strong(none, nccl::kInProgress);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

int Comm::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !is_working_; });
  return error();
}

void Comm::run() {
  pthread_setname_np(pthread_self(), "fakegpu comm");
  Machine::thread().device = device_.number();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !jobs_.empty() || is_stopping_; });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    is_working_ = true;
    lock.unlock();
    const int result = job();
    job = nullptr;
    lock.lock();
    is_working_ = false;
    int in_progress = nccl::kInProgress;
    if (jobs_.empty() || result != nccl::kSuccess) {
      error_.compare_exchange_strong(in_progress, result);
    }
    changed_.notify_all();
  }
}

void Comm::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Comm::set_error(int error, const std::string& why) {
  keep_last_error(why);
  error_ = error;
}

int Comm::meet(const IdSource& find_id) {
  const Fault& fault = plan_.fault;
  const auto stop = [this] { return should_stop(); };
  if (fault.is(Effect::kHang)) pause_for(kHangMicroseconds, stop);
  if (fault.is(Effect::kDelay)) pause_for(fault.value, stop);
  if (fault.is(Effect::kAsyncError)) {
    keep_last_error("planned fault of the initialisation");
    return fault.value != 0 ? static_cast<int>(fault.value) : nccl::kRemoteError;
  }
  nccl::UniqueId id;
  int error = find_id(&id, stop);
  if (error != nccl::kSuccess) return error;
  std::string why;
  std::unique_ptr<Meeting> meeting =
      Meeting::join(id, plan_.size, plan_.rank, {device_.bus_id(), host_name(), may_share_gpu()},
                    stop, &error, &why);
  if (meeting == nullptr) {
    keep_last_error(why);
    return error;
  }
  const std::lock_guard lock(mutex_);
  meeting_ = std::move(meeting);
  return nccl::kSuccess;
}

int Comm::launch(std::vector<Operation> operations) {
  Machine& m = machine();
  for (const Operation& operation : operations) {
    if (operation.stream->capture == cuda::kCaptureNone) continue;
    // The real one would go into the graph; nothing of kolo's may.
    for (std::size_t i = 0; i < operations.size(); ++i) m.census.count_call("captured");
    return nccl::kSuccess;
  }
  for (Operation& operation : operations) {
    const Fault planned = m.faults.next("collective");
    if (operation.fault.is(Effect::kNone)) operation.fault = planned;
  }
  return submit(std::move(operations));
}

// On the first operation's stream, behind what the other streams hold; and these go on behind it.
int Comm::submit(std::vector<Operation> operations) {
  const StreamPointer stream = operations.front().stream;
  std::vector<StreamPointer> others;
  std::vector<TicketPointer> after;
  for (const Operation& operation : operations) {
    if (operation.stream == stream) continue;
    others.push_back(operation.stream);
    if (TicketPointer tail = operation.stream->tail()) after.push_back(std::move(tail));
  }
  const std::lock_guard lock(mutex_);
  if (last_ != nullptr) after.push_back(last_);
  last_ = device_.submit(
      *stream,
      [self = shared_from_this(), work = std::move(operations)] {
        Machine& m = machine();
        m.perform(self->device_, {}, [&](Access& access) {
          int turns = 0;
          const auto stop = [&] {
            if (m.settings.dead_rank_is_error && ++turns % 10 == 0 && self->error() == 0) {
              const int dead = self->meeting_->find_dead();
              if (dead >= 0) {
                self->set_error(nccl::kRemoteError, "rank " + std::to_string(dead) + " is gone");
              }
            }
            return self->should_stop();
          };
          const auto report = [&](int error, const std::string& why) {
            self->set_error(error, why);
          };
          Launch(m, *self->meeting_, access, stop, report).run(work);
        });
      },
      std::move(after));
  for (const StreamPointer& other : others) device_.submit(*other, {}, {last_});
  return nccl::kSuccess;
}

int Comm::finish() {
  finalized_ = true;
  wait_for_work();
  const bool all = meeting_->finish([this] { return should_stop(); });
  return all ? nccl::kSuccess : nccl::kInternalError;
}

bool Comm::abort() {
  if (aborted_.exchange(true)) return false;
  const std::lock_guard lock(mutex_);
  if (meeting_ != nullptr) meeting_->ring();
  return true;
}

bool Comm::is_busy() {
  const std::lock_guard lock(mutex_);
  return last_ != nullptr && !last_->done();
}

void Comm::wait_for_work() {
  TicketPointer last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  while (last != nullptr && !should_stop()) {
    if (last->wait_for(std::chrono::milliseconds(5))) return;
  }
}

int Comm::add_factor(const Factor& factor) {
  const std::lock_guard lock(mutex_);
  factors_[kFirstFactor + next_factor_] = factor;
  return kFirstFactor + next_factor_++;
}

bool Comm::remove_factor(int op) {
  const std::lock_guard lock(mutex_);
  return factors_.erase(op) == 1;
}

bool Comm::find_factor(int op, Factor* factor) {
  *factor = Factor();
  if (op >= 0 && op < kFirstFactor) return true;
  const std::lock_guard lock(mutex_);
  const auto found = factors_.find(op);
  if (found == factors_.end()) return false;
  *factor = found->second;
  return true;
}

std::size_t Comm::factors_left() {
  const std::lock_guard lock(mutex_);
  return factors_.size();
}

bool Comm::enter() {
  const std::thread::id me = std::this_thread::get_id();
  std::thread::id nobody;
  if (!inside_.compare_exchange_strong(nobody, me)) return false;
  const std::thread::id owner = group_owner.load();
  if (owner == std::thread::id() || owner == me) return true;
  leave();
  return false;
}

}  // namespace fakegpu
