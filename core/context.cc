#include "core/context.h"

#include <algorithm>
#include <atomic>
#include <boost/container/small_vector.hpp>
#include <functional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "core/allocations.h"
#include "core/completions.h"
#include "core/context_parts.h"
#include "core/context_road.h"
#include "core/driver.h"
#include "core/engine.h"
#include "core/executor.h"
#include "core/submissions.h"
#include "core/tensor_queue.h"
#include "core/trace.h"
#include "core/unit_table.h"
#include "core/validate.h"
#include "core/wait_policy.h"
#include "ops/reduction_order.h"

namespace kolo::internal {
namespace {

// What one call handles: on the stack unless there are many.
using FewRequests = boost::container::small_vector<RequestPtr, 64>;

class JobContext final : public Context {
 public:
  JobContext(Config config, std::shared_ptr<Logger> logger, Road road,
             std::unique_ptr<Trace> trace);
  ~JobContext() override;

  Status shutdown() override;
  Status abort(const std::string& reason) override;
  Status health() const override { return queue_.closed(); }
  int rank() const override { return road_.rank; }
  int size() const override { return static_cast<int>(road_.fabric.table.peers.size()); }
  int local_rank() const override { return self().local_rank; }
  int local_size() const override { return local_size_; }
  std::string info_json() const override;
  std::string counters_json() const;

  Result<void*> allocate(std::size_t bytes) override { return allocations_.allocate(bytes); }
  Status free(void* memory) override { return allocations_.free(memory); }

  Result<RequestId> submit(const Submission& submission) override;
  Status run(const Submission& submission) override;
  Status refuse(const Submission& submission, Status why) override;
  Status group_begin(std::string name) override { return submissions_.open_group(std::move(name)); }
  Result<RequestId> group_end() override;
  Status group_run() override;
  Result<RequestId> prepare(const Submission& submission) override;
  Status start(std::span<const RequestId> requests) override;
  Status wait(RequestId request, Nanos limit, bool& done) override;
  Status test(RequestId request, bool& done) override;
  Status wait_all(std::span<const RequestId> requests, Nanos limit, std::span<bool> done) override;
  Status release(RequestId request) override;

 private:
  [[nodiscard]] const PeerInfo& self() const {
    return road_.fabric.table.peers[static_cast<std::size_t>(road_.rank)];
  }
  Status check(const Submission& submission);
  Result<RequestPtr> add_to_group(const Submission& submission);
  void begin(const RequestPtr& request, std::string_view name);
  Result<UnitTable::Way> publish(const RequestPtr& request, const Submission& submission);
  Status enqueue(std::span<const RequestPtr> requests, bool wake);
  Result<RequestPtr> find(RequestId id);
  void end_if_closed();

  Config config_;
  std::shared_ptr<Logger> logger_;
  SteadyClock clock_;
  Road road_;
  int local_size_ = 0;
  std::unique_ptr<Trace> trace_;
  Allocations allocations_;
  RequestPool requests_;  // outlives all that shares them
  UnitTable units_;
  TensorQueue queue_;
  Completions completions_;
  ReductionOrder order_;
  HostMap map_;
  std::vector<std::vector<Channel*>> channels_;
  Executor executor_;
  Engine engine_;
  Submissions submissions_;
  std::atomic<bool> shut_down_{false};
  Driver driver_;
};

JobContext::JobContext(Config config, std::shared_ptr<Logger> logger, Road road,
                       std::unique_ptr<Trace> trace)
    : config_(std::move(config)),
      logger_(std::move(logger)),
      road_(std::move(road)),
      local_size_(count_local(road_)),
      trace_(std::move(trace)),
      allocations_(road_.memory.arena.get()),
      completions_(units_, clock_, *logger_),
      order_(hosts_of(road_.fabric.table)),
      map_(hosts_of(road_.fabric.table)),
      channels_(channels_of(road_.fabric)),
      executor_(executor_options(config_, road_),
                streams_of(config_, road_, channels_, order_, map_), order_, completions_, clock_),
      engine_(Topology(hosts_of(road_.fabric.table)), road_.rank, road_.fabric.table.generation,
              {sequencer_options(config_),
               std::chrono::milliseconds(config_.integer("peer_timeout_ms")),
               host_names_of(road_.fabric.table)},
              {queue_, units_, completions_, executor_, *road_.fabric.control, *logger_,
               road_.memory.window.get(), road_.memory.board.get()},
              clock_.now()),
      submissions_(requests_),
      driver_({engine_, executor_, queue_, completions_, units_, road_.fabric,
               road_.memory.window.get(), *road_.poller, clock_, *logger_, trace_.get()},
              wait_policy(config_, local_size_)) {
  if (road_.memory.board != nullptr) {
    units_.use_board(*road_.memory.board, *road_.memory.window, road_.rank);
  }
  units_.set_trace(trace_.get(), clock_);
  completions_.set_trace(trace_.get());
  completions_.set_callback_wake([this] { road_.poller->wake(); });
  executor_.set_trace(trace_.get());
  engine_.set_trace(trace_.get());
  driver_.start();
}

JobContext::~JobContext() {
  if (!shut_down_) static_cast<void>(shutdown().is_ok());
}

// ---- Submitting -------------------------------------------------------------------------------

Status JobContext::check(const Submission& submission) {
  Status status = validate(submission, size(), rank());
  return status ? status : refuse(submission, std::move(status));
}

Status JobContext::refuse(const Submission& submission, Status why) {
  if (submissions_.in_group()) {
    submissions_.spoil_group(why);
  } else if (queue_.closed().is_ok() && size() > 1 && validate_name(submission.name)) {
    UnitPtr unit = submissions_.refused(submission, why.text());
    if (units_.refuse(unit->key)) {
      queue_.command(RefusedUnit{std::move(unit)});
      driver_.notice_queue();
    }
  }
  return why;
}

Result<RequestPtr> JobContext::add_to_group(const Submission& submission) {
  Result<RequestPtr> group = submissions_.add_to_group(submission);
  if (!group) submissions_.spoil_group(group.status());
  return group;
}

void JobContext::begin(const RequestPtr& request, std::string_view name) {
  trace_phase(trace_.get(), Trace::Phase::kEnqueue, request->id, name, clock_.now());
  if (request->timeout != kNever) request->deadline = clock_.now() + request->timeout;
}

// What has slipped in while the context closed ends with it.
void JobContext::end_if_closed() {
  if (!queue_.is_closed()) return;
  const Status status = queue_.closed();
  for (const RequestPtr& request : units_.give_up(std::nullopt)) {
    completions_.finish(request, status);
  }
}

// Into its slot, if the unit is known and has one.
Result<UnitTable::Way> JobContext::publish(const RequestPtr& request,
                                           const Submission& submission) {
  if (submission.name.empty()) return UnitTable::Way::kQueue;
  begin(request, submission.name);
  const Result<UnitTable::Way> way = units_.publish(request, 0, submission);
  if (way && *way != UnitTable::Way::kQueue) end_if_closed();
  return way;
}

Status JobContext::enqueue(std::span<const RequestPtr> requests, bool wake) {
  std::vector<RequestPtr> rest;
  KOLO_RETURN_IF_ERROR(units_.submit(requests, rest));
  end_if_closed();
  if (!rest.empty()) queue_.submit(rest);
  if (!wake) return Status::ok();
  if (!rest.empty()) {
    driver_.notice_queue();
  } else {
    driver_.notice_published(requests.back());
  }
  return Status::ok();
}

Result<RequestId> JobContext::submit(const Submission& submission) {
  KOLO_RETURN_IF_ERROR(check(submission));
  if (submissions_.in_group()) {
    const Result<RequestPtr> group = add_to_group(submission);
    if (!group) return group.status();
    requests_.give_handle(*group);
    return (*group)->id;
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  const RequestPtr request = submissions_.request_of(submission);
  requests_.give_handle(request);
  Status status;
  const Result<UnitTable::Way> way = publish(request, submission);
  if (!way) {
    status = way.status();
  } else if (*way != UnitTable::Way::kQueue) {
    driver_.notice_published(request);
  } else {
    request->unit = submissions_.unit_of(submission);
    if (submission.name.empty()) begin(request, request->unit->key.name);
    status = enqueue({&request, 1}, true);
  }
  if (status) return request->id;
  requests_.drop_handle(request->id);
  return status;
}

Status JobContext::run(const Submission& submission) {
  KOLO_RETURN_IF_ERROR(check(submission));
  if (submissions_.in_group()) return add_to_group(submission).status();
  if (driver_.on_background()) {
    return {StatusCode::kWouldDeadlock,
            "a blocking call inside a callback: pass a request and wait for it elsewhere"};
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  const RequestPtr request = submissions_.request_of(submission);
  const Result<UnitTable::Way> way = publish(request, submission);
  if (!way) return way.status();
  if (*way == UnitTable::Way::kInline && driver_.await_inline(request)) return request->status;
  if (*way == UnitTable::Way::kQueue) {
    request->unit = submissions_.unit_of(submission);
    if (submission.name.empty()) begin(request, request->unit->key.name);
    KOLO_RETURN_IF_ERROR(enqueue({&request, 1}, false));
  }
  driver_.drive_until([&] { return request->done(); }, kNever);
  return request->status;
}

Result<RequestId> JobContext::group_end() {
  UnitPtr refused;
  const Result<RequestPtr> group = submissions_.close_group(refused);
  if (!group) {
    if (refused != nullptr && queue_.closed().is_ok() && size() > 1 &&
        units_.refuse(refused->key)) {
      queue_.command(RefusedUnit{refused});
      driver_.notice_queue();
    }
    return group.status();
  }
  const RequestPtr& request = *group;
  requests_.give_handle(request);
  Status status = queue_.closed();
  if (status) {
    begin(request, request->unit->key.name);
    status = enqueue({&request, 1}, true);
  }
  if (status) return request->id;
  requests_.drop_handle(request->id);
  request->status = status;  // for members' own handles
  request->phase = RequestState::Phase::kDone;
  return status;
}

Status JobContext::group_run() {
  if (driver_.on_background()) {
    return {
        StatusCode::kWouldDeadlock,
        "a blocking kolo_group_end inside a callback: pass a request and wait for it elsewhere"};
  }
  const Result<RequestId> group = group_end();
  if (!group) return group.status();
  bool done = false;
  return wait(*group, kNever, done);
}

Result<RequestId> JobContext::prepare(const Submission& submission) {
  if (submissions_.in_group()) {
    return refuse(submission, invalid_argument("a persistent operation cannot join a group. End "
                                               "the group first"));
  }
  KOLO_RETURN_IF_ERROR(check(submission));
  if (submission.name.empty()) {
    return refuse(submission, invalid_argument("a persistent operation needs a name, by which the "
                                               "ranks pair it"));
  }
  const RequestPtr request = submissions_.request_of(submission);
  request->unit = submissions_.unit_of(submission);
  request->persistent = true;
  requests_.give_handle(request);
  return request->id;
}

Status JobContext::start(std::span<const RequestId> requests) {
  FewRequests found;
  found.reserve(requests.size());
  for (const RequestId id : requests) {
    Result<RequestPtr> request = find(id);
    if (!request) return request.status();
    if (!(*request)->persistent) {
      return invalid_argument("request " + std::to_string(id) +
                              " is not persistent; it was started by its own call");
    }
    if ((*request)->phase == RequestState::Phase::kRunning) {
      return Status(StatusCode::kDuplicateName,
                    unit_text(*(*request)->unit) + ": is still under way. Wait for it first");
    }
    found.push_back(*std::move(request));
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  for (const RequestPtr& request : found) begin(request, request->unit->key.name);
  return found.empty() ? Status::ok() : enqueue({found.data(), found.size()}, true);
}

// ---- Waiting ----------------------------------------------------------------------------------

Result<RequestPtr> JobContext::find(RequestId id) {
  RequestPtr request = requests_.find(id);
  if (request != nullptr) return request;
  return invalid_argument("request " + std::to_string(id) +
                          " is unknown: it was released already, or belongs to another context");
}

Status JobContext::wait(RequestId id, Nanos limit, bool& done) {
  const RequestId ids[] = {id};
  bool flags[] = {false};
  Status status = wait_all(ids, limit, flags);
  done = flags[0];
  return status;
}

Status JobContext::test(RequestId id, bool& done) {
  done = false;
  Result<RequestPtr> request = find(id);
  if (!request) return request.status();
  if ((*request)->phase == RequestState::Phase::kRunning) driver_.drive_once();
  if ((*request)->phase == RequestState::Phase::kRunning) {  // no wait: fine in a callback, too
    return {StatusCode::kInProgress, "the operation goes on"};
  }
  return wait(id, 0ns, done);
}

Status JobContext::wait_all(std::span<const RequestId> ids, Nanos limit, std::span<bool> done) {
  FewRequests requests(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    done[i] = ids[i] == 0;
    if (ids[i] == 0) continue;
    Result<RequestPtr> request = find(ids[i]);
    if (!request) return request.status();
    if ((*request)->phase == RequestState::Phase::kOpen) {
      return {StatusCode::kWouldDeadlock,
              "request " + std::to_string(ids[i]) +
                  " is a member of a group that is still open. Call kolo_group_end first"};
    }
    requests[i] = *std::move(request);
  }
  std::size_t next = 0;  // all before it are complete
  const auto all_done = [&] {
    while (next < requests.size() &&
           (requests[next] == nullptr || requests[next]->phase != RequestState::Phase::kRunning)) {
      ++next;
    }
    return next == requests.size();
  };
  bool finished = all_done();
  if (!finished) {
    if (driver_.on_background()) {
      return {StatusCode::kWouldDeadlock,
              "waiting inside a callback for an operation that is still running"};
    }
    const Nanos now = clock_.now();
    finished = driver_.drive_until(all_done, limit == kNever ? kNever : now + limit);
  }
  Status first_error;
  bool in_progress = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr) continue;
    if (!finished && requests[i]->phase == RequestState::Phase::kRunning) {
      in_progress = true;
      continue;
    }
    done[i] = true;
    const bool has_run = requests[i]->phase == RequestState::Phase::kDone;
    if (has_run && first_error.is_ok()) first_error = requests[i]->status;
    if (!requests[i]->persistent) requests_.drop_handle(ids[i]);
  }
  if (!first_error.is_ok() || !in_progress) return first_error;
  return {StatusCode::kInProgress, "the wait's limit has passed; the operation goes on"};
}

Status JobContext::release(RequestId id) {
  Result<RequestPtr> request = find(id);
  if (!request) return request.status();
  requests_.drop_handle(id);
  return Status::ok();
}

// ---- Ending -----------------------------------------------------------------------------------

Status JobContext::shutdown() {
  if (driver_.on_background()) {
    return {StatusCode::kWouldDeadlock, "kolo_shutdown inside a callback: call it elsewhere"};
  }
  if (shut_down_.exchange(true)) {
    return {StatusCode::kNotInitialized, "the context has been shut down already"};
  }
  queue_.close(aborted("kolo_shutdown was called on this rank"));
  queue_.command(GoodbyeCommand{});
  const Nanos deadline =
      clock_.now() + std::chrono::milliseconds(config_.integer("shutdown_timeout_ms"));
  driver_.drive_farewell(deadline,
                         aborted("kolo_shutdown was called on this rank, and the operation did "
                                 "not end within shutdown_timeout_ms"));
  driver_.stop();
  return engine_.broken();
}

Status JobContext::abort(const std::string& reason) {
  constexpr std::size_t kReasonBytes = 4096;
  if (const Status before = health(); !before) return before;
  queue_.command(AbortCommand{reason.substr(0, kReasonBytes)});
  road_.poller->wake();
  if (!driver_.on_background()) {
    driver_.drive_until([this] { return !queue_.closed().is_ok(); }, clock_.now() + 1s);
  }
  return Status::ok();
}

// ---- Observing --------------------------------------------------------------------------------

std::string JobContext::counters_json() const {
  const Window* window = road_.memory.window.get();
  return "{\"bytes_copied\":" + std::to_string(executor_.bytes_copied()) +
         ",\"wakeups\":" + std::to_string(window == nullptr ? 0 : window->counters().rings.load()) +
         ",\"control_frames\":" + std::to_string(engine_.frames_sent()) + "}";
}

std::string JobContext::info_json() const {
  std::string text = "{\"rank\":" + std::to_string(rank()) + ",\"size\":" + std::to_string(size()) +
                     ",\"local_rank\":" + std::to_string(local_rank()) +
                     ",\"local_size\":" + std::to_string(local_size()) + ",\"hosts\":[";
  std::vector<int> hosts = hosts_of(road_.fabric.table);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(hosts[i]);
  }
  text += "],\"road\":\"" + road_.name +
          "\",\"generation\":" + std::to_string(road_.fabric.table.generation) + ",\"options\":{";
  bool first = true;
  for (const OptionRow& row : Config::table()) {
    if (row.key == "secret" || row.key == "job") continue;
    if (row.type != OptionRow::Type::kInteger && row.type != OptionRow::Type::kChoice) continue;
    text += (first ? "\"" : ",\"") + std::string(row.key) + "\":\"" + config_.text(row.key) + "\"";
    first = false;
  }
  return text + "},\"counters\":" + counters_json() + "}";
}

}  // namespace

Result<std::unique_ptr<Context>> Context::create(const Config& given, Logger::Sink log_sink) {
  Config config = given;
  auto logger = std::make_shared<Logger>();
  logger->set_sink(std::move(log_sink));
  const std::string level = config.text("log_level");
  logger->set_level(level == "error"     ? LogLevel::kError
                    : level == "warning" ? LogLevel::kWarning
                    : level == "info"    ? LogLevel::kInfo
                                         : LogLevel::kDebug);
  if (config.integer("size") > 1) logger->set_rank(static_cast<int>(config.integer("rank")));
  Result<Road> road = build_road(config, *logger);
  if (!road) return road.status();
  std::unique_ptr<Trace> trace;
  if (!config.text("timeline").empty()) {
    auto opened = Trace::open(config.text("timeline"), road->rank, road->fabric.table.generation);
    if (!opened) return opened.status();
    trace = *std::move(opened);
  }
  logger->info("a job of " + std::to_string(road->fabric.table.peers.size()) + " ranks, road " +
               road->name + ", algorithm " + config.text("algorithm"));
  return std::unique_ptr<Context>(std::make_unique<JobContext>(std::move(config), std::move(logger),
                                                               *std::move(road), std::move(trace)));
}

}  // namespace kolo::internal
