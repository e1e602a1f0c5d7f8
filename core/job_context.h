// JobContext: the Context there is: what it is made of, and the calls of one rank's program.
//
// Its methods stand by subject: context.cc (life and observing), context_submit.cc (submitting,
// groups, persistent requests), context_sets.cc (process sets and join), context_wait.cc (waiting
// and outputs). Threads and ownership: see context.h.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocations.h"
#include "core/completions.h"
#include "core/context.h"
#include "core/context_road.h"
#include "core/device_lane.h"
#include "core/driver.h"
#include "core/engine.h"
#include "core/executor.h"
#include "core/gpus.h"
#include "core/process_sets.h"
#include "core/set_roads.h"
#include "core/submissions.h"
#include "core/tensor_queue.h"
#include "core/trace.h"
#include "core/unit_table.h"
#include "ops/host_map.h"

namespace kolo::internal {

[[nodiscard]] inline bool makes_or_ends_set(OpKind kind) {
  return kind == OpKind::kCreateSet || kind == OpKind::kDestroySet;
}

class JobContext final : public Context {
 public:
  JobContext(Config config, std::shared_ptr<Logger> logger, Road road,
             std::unique_ptr<Trace> trace);
  ~JobContext() override;

  Status shutdown() override;
  Status abort(const std::string& reason) override;
  Status health() const override;
  int rank() const override { return road_.rank; }
  int size() const override { return static_cast<int>(road_.fabric.table.peers.size()); }
  int local_rank() const override { return self().local_rank; }
  int local_size() const override { return local_size_; }
  std::string info_json() const override;
  std::string counters_json() const;

  Result<void*> allocate(std::size_t bytes) override { return allocations_.allocate(bytes); }
  Result<void*> allocate_on(std::int32_t device, std::size_t bytes) override {
    return gpus_.allocate(device, bytes);
  }
  Status free(void* memory) override;

  Result<RequestId> submit(Submission submission) override;
  Status run(Submission submission) override;
  Status refuse(const Submission& submission, Status why) override;
  Status group_begin(std::string name) override { return submissions_.open_group(std::move(name)); }
  Result<RequestId> group_end() override;
  Status group_run() override;
  Result<RequestId> join(const Submission& submission) override;
  Status run_join(const Submission& submission) override;
  Result<std::vector<int>> ranks_of(std::int32_t process_set) const override;
  Result<RequestId> prepare(Submission submission) override;
  Status start(std::span<const RequestId> requests) override;
  Status wait(RequestId request, Nanos limit, bool& done) override;
  Status test(RequestId request, bool& done) override;
  Status stream_wait(RequestId request, void* stream, Nanos limit) override;
  Status wait_all(std::span<const RequestId> requests, Nanos limit, std::span<bool> done) override;
  Result<Output> output(RequestId request) override;
  Status release(RequestId request) override;
  void close_in_child() const noexcept override { road_.poller->close_in_child(); }

 private:
  [[nodiscard]] const PeerInfo& self() const {
    return road_.fabric.table.peers[static_cast<std::size_t>(road_.rank)];
  }
  Status place(Submission& submission);
  Status mark(Submission& submission);
  Status mark_again(RequestState& request);
  static void expect_launches(RequestState& request);
  Status await_launch(const RequestPtr& request, void* stream, Nanos limit);
  Result<ProcessSet*> check(const Submission& submission);
  Result<ProcessSet*> check_set_call(const Submission& submission);
  Result<RequestPtr> add_to_group(const Submission& submission, ProcessSet& set);
  Result<RequestPtr> begin_join(const Submission& submission);
  void begin(const RequestPtr& request, std::string_view name);
  Result<UnitTable::Way> publish(const RequestPtr& request, const Submission& submission);
  Status negotiate(const RequestPtr& request, const Submission& submission, bool wake);
  Status enqueue(std::span<const RequestPtr> requests, bool wake);
  Result<RequestPtr> find(RequestId id);
  [[nodiscard]] Status world_status() const;
  void stop_gpus(Nanos limit);
  void end_if_closed(const ProcessSet& set);

  Config config_;
  std::shared_ptr<Logger> logger_;
  SteadyClock clock_;
  Road road_;
  int local_size_ = 0;
  std::unique_ptr<Trace> trace_;
  Allocations allocations_;
  std::unique_ptr<Gpus> own_gpus_;  // its events are held by requests
  Gpus& gpus_;
  RequestPool requests_;  // outlives all that shares them
  UnitTable units_;
  TensorQueue queue_;
  Completions completions_;
  ProcessSets sets_;
  HostMap map_;
  std::vector<std::vector<Channel*>> channels_;
  SetRoads set_roads_;
  std::unique_ptr<DeviceLane> own_lane_;
  DeviceLane& lane_;
  Executor executor_;
  Engine engine_;
  Submissions submissions_;
  std::atomic<bool> shut_down_{false};
  Driver driver_;
};

}  // namespace kolo::internal
