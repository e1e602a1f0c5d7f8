#include "core/context.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/context_parts.h"
#include "core/job_context.h"
#include "core/wait_policy.h"

namespace kolo::internal {
namespace {

// How long a farewell waits for ranks that have not come to a call that was refused here.
constexpr Nanos kForRefusals = 500ms;

}  // namespace

JobContext::JobContext(Config config, std::shared_ptr<Logger> logger, Road road,
                       std::unique_ptr<Trace> trace)
    : config_(std::move(config)),
      logger_(std::move(logger)),
      road_(std::move(road)),
      local_size_(count_local(road_)),
      trace_(std::move(trace)),
      allocations_(road_.memory.arena.get()),
      own_gpus_(std::make_unique<Gpus>(config_, [this] { driver_.notice_queue(); })),
      gpus_(*own_gpus_),
      completions_(units_, clock_, *logger_),
      sets_(hosts_of(road_.fabric.table), road_.rank),
      map_(hosts_of(road_.fabric.table)),
      channels_(channels_of(road_.fabric)),
      set_roads_(road_, channels_, executor_options(config_, road_).algorithm),
      own_lane_(
          std::make_unique<DeviceLane>(lane_options(config_, road_), gpus_, units_, *logger_)),
      lane_(*own_lane_),
      executor_(executor_options(config_, road_),
                streams_of(config_, road_, channels_, sets_.world().order, map_), completions_,
                clock_),
      engine_(Topology(hosts_of(road_.fabric.table)), road_.rank, road_.fabric.table.generation,
              {sequencer_options(config_),
               std::chrono::milliseconds(config_.integer("peer_timeout_ms")),
               host_names_of(road_.fabric.table)},
              {queue_, units_, completions_, executor_, *road_.fabric.control, *logger_, sets_,
               set_roads_, requests_, road_.memory.window.get(), road_.memory.board.get(),
               road_.witness(),
               [client = road_.client.get()](int lost, const std::string& why) {
                 if (client != nullptr) client->tell_harmed({lost, why});
               }},
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
  executor_.set_lane(lane_);
  engine_.set_trace(trace_.get());
  driver_.start();
}

JobContext::~JobContext() {
  if (!shut_down_) static_cast<void>(shutdown().is_ok());
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
  const Nanos limit = std::chrono::milliseconds(config_.integer("shutdown_timeout_ms"));
  queue_.command(GoodbyeCommand{std::min(kForRefusals, limit / 2)});
  const Nanos deadline = clock_.now() + limit;
  const std::string ms = config_.text("shutdown_timeout_ms");
  driver_.drive_farewell(
      deadline, aborted("kolo_shutdown was called on this rank, and the operation did not end "
                        "within shutdown_timeout_ms (" +
                        ms + ")"));
  driver_.stop();
  stop_gpus(limit);
  KOLO_RETURN_IF_ERROR(engine_.broken());
  const Status health = world_status();
  if (health.code() == StatusCode::kPeerLost) return health;
  const Completions::CutOff& lost = completions_.cut_off();
  if (lost.requests == 0) return Status::ok();
  return aborted("operations that had not ended within shutdown_timeout_ms (" + ms +
                 ") of kolo_shutdown: " + std::to_string(lost.requests) + ", the first of them " +
                 lost.first +
                 ". Wait for operations before it, see why other ranks are slow, or "
                 "raise KOLO_SHUTDOWN_TIMEOUT_MS");
}

// A library's call that does not come back keeps its thread, and what that may still use.
void JobContext::stop_gpus(Nanos limit) {
  gpus_.refuse(aborted("kolo_shutdown was called on this rank"), limit);
  if (gpus_.stop([&lane = lane_] { lane.release(); }, limit)) return;
  logger_->error(
      "kolo's thread for GPUs is left behind: a call of CUDA or NCCL does not come back, or their "
      "device does not. End this process; NCCL_DEBUG=INFO tells more");
  static_cast<void>(own_lane_.release());
  static_cast<void>(own_gpus_.release());
}

Status JobContext::abort(const std::string& reason) {
  constexpr std::size_t kReasonBytes = 4096;
  KOLO_RETURN_IF_ERROR(queue_.closed());
  queue_.command(AbortCommand{reason.substr(0, kReasonBytes)});
  road_.poller->wake();
  if (!driver_.on_background()) {
    driver_.drive_until([this] { return !queue_.closed().is_ok(); }, clock_.now() + 1s);
  }
  return Status::ok();
}

// A set that goes on without a rank that is gone is no healthy world.
Status JobContext::health() const {
  KOLO_RETURN_IF_ERROR(queue_.closed());
  return world_status();
}

Status JobContext::world_status() const {
  const ProcessSet& world = sets_.world();
  return world.left.load(std::memory_order_acquire) ? world.left_status : Status::ok();
}

Status JobContext::free(void* memory) {
  const Result<bool> freed = gpus_.free(memory);
  if (!freed) return freed.status();
  return *freed ? Status::ok() : allocations_.free(memory);
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
  RefusalCounts refused = road_.fabric.refused;
  if (road_.server != nullptr) refused += road_.server->refused();
  return text + "},\"refused\":" + refused.json() + ",\"counters\":" + counters_json() + "}";
}

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
    auto opened =
        Trace::open(config.text("timeline"), road->rank, road->fabric.table.generation, *logger);
    if (!opened) return opened.status();
    trace = *std::move(opened);
  }
  logger->info("a job of " + std::to_string(road->fabric.table.peers.size()) + " ranks, road " +
               road->name + ", algorithm " + config.text("algorithm"));
  try {
    return std::unique_ptr<Context>(std::make_unique<JobContext>(
        std::move(config), std::move(logger), *std::move(road), std::move(trace)));
  } catch (const std::system_error& error) {  // of std::thread
    return resource_error(std::string("cannot start a thread: ") + error.what() +
                          "; raise the limit of processes (ulimit -u), or the container's");
  }
}

}  // namespace kolo::internal
