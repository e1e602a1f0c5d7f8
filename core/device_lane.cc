#include "core/device_lane.h"

#include <algorithm>

#include "base/check.h"
#include "coordinator/placement.h"
#include "core/device_calls.h"
#include "core/device_stall.h"
#include "core/stand_in.h"

namespace kolo::internal {
namespace {

constexpr int kReminderFactor = 10;  // as of the coordinator's stall warnings

}  // namespace

// Done when the ranks have decided, which another stream sees to.
class DeviceLane::Wait final : public Operation {
 public:
  void start(const DeviceRoad& road) { road_ = &road; }
  Result<Progress> advance() override {
    const bool decided = road_->state != DeviceRoad::State::kPending;
    return decided ? Progress::kDone : Progress::kBlocked;
  }
  void cancel() override {}

 private:
  const DeviceRoad* road_ = nullptr;
};

// One operation of NCCL's, with the tensors that it is for.
class DeviceLane::Launch final : public nccl::CollectiveTask {
 public:
  explicit Launch(Gpus& gpus) : CollectiveTask(**gpus.library(), gpus.thread()), gpus_(gpus) {}
  OrderedOperation ordered;

 private:
  Status make_outputs() override {
    RequestState& request = *ordered.tensors.front().request;
    if (!request.allocates) return Status::ok();
    KOLO_RETURN_IF_ERROR(give_device_output(gpus_, request));
    collective().tensors.front().output = request.buffers.front().output;
    return Status::ok();
  }
  // One that has failed already is not launched: who waits for that waits for its end.
  void launched(const cuda::EventRef& done) override {
    if (is_doomed()) return;
    for (const auto& tensor : ordered.tensors) {
      RequestState& request = *tensor.request;
      request.launched.push_back(done);
      request.unlaunched.fetch_sub(1, std::memory_order_release);
    }
  }

  Gpus& gpus_;
};

class DeviceLane::Stop {
 public:
  enum class What { kNothing, kSetup, kWait, kStaged };

  Stop(Gpus& gpus, const DeviceSetup::Rank& rank) : setup(gpus, rank) {}

  What what = What::kNothing;
  Collectives* collectives = nullptr;
  std::uint32_t sequence = 0;
  Place* place = nullptr;
  DeviceSetup setup;
  Wait wait;
  cuda::StagedOperation staged;
};

DeviceLane::DeviceLane(const Options& options, Gpus& gpus, UnitTable& units, Logger& logger)
    : options_(options), gpus_(gpus), units_(units), clock_(gpus.clock()), logger_(logger) {}

DeviceLane::~DeviceLane() = default;

bool DeviceLane::is_for(const OrderedOperation& ordered) {
  return is_on_a_device(ordered.tensors.front().spec());
}

bool DeviceLane::is_preparing(const StopPtr& stop) {
  return stop != nullptr && (stop->what == Stop::What::kSetup || stop->what == Stop::What::kWait);
}

// ---- Which way ----------------------------------------------------------------------------------

// From what all ranks know alike.
const char* DeviceLane::why_staged(const OrderedOperation& ordered) const {
  const auto& first = ordered.tensors.front();
  const TensorSpec& spec = first.spec();
  if (options_.staged_only) return "the option deterministic is set";
  if (!is_on_devices(spec)) return "some ranks have the tensor in host memory";
  if (first.request->absent > 0) return "some ranks have joined";
  const bool scaled = std::any_of(
      ordered.tensors.begin(), ordered.tensors.end(), [](const OrderedOperation::Tensor& tensor) {
        return tensor.spec().prescale != 1.0 || tensor.spec().postscale != 1.0;
      });
  return nccl::why_not(spec.kind, spec.dtype, spec.op, scaled);
}

DeviceRoad& DeviceLane::road_of(const OrderedOperation& ordered) {
  const auto& first = ordered.tensors.front();
  const ProcessSet& set = *first.request->set;
  const auto found = roads_.find(KeyView(set.id, first.spec().devices));
  if (found != roads_.end()) return *found->second;
  auto& road = roads_[{set.id, first.spec().devices}] = std::make_unique<DeviceRoad>();
  road->device = own_device(ordered);
  road->process_set = set.id;
  road->size = set.size();
  road->place = set.place;
  return *road;
}

Operation* DeviceLane::begin(StopPtr& stop, Collectives& collectives, std::uint32_t sequence,
                             OrderedOperation& ordered) {
  if (stop == nullptr) {
    stop = std::make_shared<Stop>(gpus_, options_.rank);
    stops_.push_back(stop);
  }
  stop->collectives = &collectives;
  stop->sequence = sequence;
  stop->place = nullptr;
  if (const char* why = why_staged(ordered)) {
    tell(ordered, why, true);
    return stage(*stop, ordered);
  }
  DeviceRoad& road = road_of(ordered);
  if (road.state == DeviceRoad::State::kStaged) return stage(*stop, ordered);
  Place& place = append(ordered, road);
  if (road.state == DeviceRoad::State::kNccl) {
    take(place, ordered);
    return nullptr;
  }
  stop->place = &place;
  const bool first =
      std::exchange(road.state, DeviceRoad::State::kPending) != DeviceRoad::State::kPending;
  stop->what = first ? Stop::What::kSetup : Stop::What::kWait;
  if (!first) {
    stop->wait.start(road);
    return &stop->wait;
  }
  stop->setup.start(collectives, sequence, road);
  return &stop->setup;
}

Operation* DeviceLane::go_on(Stop& stop, OrderedOperation& ordered) {
  if (stop.what == Stop::What::kSetup) decide(stop, ordered);
  stop.what = Stop::What::kNothing;
  Place& place = *std::exchange(stop.place, nullptr);
  if (place.road->state == DeviceRoad::State::kNccl) {
    take(place, ordered);
    return nullptr;
  }
  place.state = Place::State::kGone;
  tell(ordered, place.road->why_staged, !options_.rank.by_nccl);
  return stage(stop, ordered);
}

void DeviceLane::forget(const StopPtr& stop) {
  if (stop == nullptr) return;
  stop->what = Stop::What::kNothing;
  if (stop->place != nullptr) stop->place->state = Place::State::kGone;
  stop->place = nullptr;
}

Status DeviceLane::take_back(StopPtr& stop, const Status& why) {
  if (stop == nullptr) return why;
  bool is_left = false;
  if (stop->what == Stop::What::kSetup) is_left = stop->setup.take_back(why, options_.patience);
  if (stop->what == Stop::What::kStaged) is_left = stop->staged.take_back(why, options_.patience);
  if (!is_left) return why;
  forget(stop);
  stop.reset();  // the lane keeps it
  return left_behind(why, options_.patience);
}

void DeviceLane::decide(Stop& stop, const OrderedOperation& ordered) {
  DeviceRoad& road = *stop.place->road;
  const ProcessSet& set = *ordered.tensors.front().request->set;
  road.why_staged = why_not_by_nccl(stop.setup.records(), set.ranks);
  if (!road.why_staged.empty()) {
    road.state = DeviceRoad::State::kStaged;
    return;
  }
  road.id = stop.setup.records().front().id;
  road.packs = packs(stop.setup.records());
  road.communicator = std::make_unique<nccl::Communicator>(**gpus_.library(), gpus_.thread(),
                                                           clock_, options_.limits, road.device);
  road.open = std::make_unique<DeviceRoad::Open>(gpus_.thread(), road);
  road.state = DeviceRoad::State::kNccl;
}

// What a user would not expect is a warning.
void DeviceLane::tell(const OrderedOperation& ordered, const std::string& why, bool is_expected) {
  if (own_device(ordered) == kHostMemory || !said_.insert(why).second) return;
  const std::string text = unit_text(*ordered.tensors.front().request->unit) +
                           " goes through host memory, and others like it: " + why;
  if (is_expected) {
    logger_.info(text);
  } else {
    logger_.warning(text);
  }
}

Operation* DeviceLane::stage(Stop& stop, OrderedOperation& ordered) {
  fill(stop.staged.call(), ordered, options_.whole);
  if (own_device(ordered) != kHostMemory) stop.staged.call().thread = &gpus_.thread();
  RequestState& request = *ordered.tensors.front().request;
  if (request.allocates && own_device(ordered) != kHostMemory) {
    stop.staged.call().make_output = [this, &request](cuda::StagedTensor& tensor) -> Status {
      KOLO_RETURN_IF_ERROR(give_device_output(gpus_, request));
      tensor.output = request.buffers.front().output;
      return Status::ok();
    };
  }
  stop.what = Stop::What::kStaged;
  stop.staged.start(*stop.collectives, stop.sequence);
  return &stop.staged;
}

// ---- The line -----------------------------------------------------------------------------------

DeviceLane::Place& DeviceLane::append(const OrderedOperation& ordered, DeviceRoad& road) {
  if (spare_.empty()) {
    line_.push_back(std::make_unique<Place>());
  } else {
    line_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  Place& place = *line_.back();
  place.state = Place::State::kUndecided;
  place.process_set = ordered.process_set;
  place.run = ordered.run;
  place.road = &road;
  place.given_up = Status::ok();
  ++road.users;
  return place;
}

void DeviceLane::take(Place& place, OrderedOperation& ordered) {
  if (place.launch == nullptr) {
    place.launch = std::make_unique<Launch>(gpus_);
  }
  Launch& launch = *place.launch;
  fill(launch.collective(), ordered);
  launch.prepare(*place.road->communicator, place.road->device,
                 place.road->packs ? std::optional(options_.pack_bytes) : std::nullopt);
  for (const auto& tensor : ordered.tensors) {
    RequestState& request = *tensor.request;
    if (++request.in_line == request.unit->tensors.size()) units_.free_name(request);
  }
  std::swap(launch.ordered, ordered);
  ordered.tensors.clear();
  place.state = Place::State::kReady;
}

bool DeviceLane::post_ready() {
  bool moved = false;
  Nanos now{0};
  for (const auto& place : line_) {
    if (place->state == Place::State::kUndecided) break;
    if (place->state != Place::State::kReady || !place->given_up.is_ok()) continue;
    // In the order of the line, too: two communicators that are made in different orders on two
    // ranks would wait for one another.
    if (!std::exchange(place->road->is_opening, true)) gpus_.thread().post(*place->road->open);
    gpus_.thread().post(*place->launch);
    place->state = Place::State::kPosted;
    if (!std::exchange(moved, true)) now = clock_.now();
    place->posted_at = now;
    place->next_warning = options_.stall_warning == kNever ? kNever : now + options_.stall_warning;
    next_stall_look_ = std::min(next_stall_look_, place->next_warning);
  }
  return moved;
}

void DeviceLane::take_back(Place& place) {
  const auto taken = gpus_.thread().take_back(*place.launch, place.given_up, options_.patience);
  if (taken == cuda::LaunchThread::TakenBack::kLeftBehind) {
    place.state = Place::State::kLeftBehind;
  }
}

// The first one that is overdue speaks for those behind it, which wait for it on the device.
void DeviceLane::warn_of_stall() {
  if (line_.empty() || next_stall_look_ == kNever) return;
  const Nanos now = clock_.now();
  if (now < next_stall_look_) return;
  next_stall_look_ = kNever;
  DeviceStall stall;
  for (const auto& place : line_) {
    if (place->state != Place::State::kPosted) continue;
    if (place->next_warning <= now) {
      place->next_warning = now + kReminderFactor * options_.stall_warning;
      if (stall.operations++ == 0) {
        const auto phase = place->launch->phase();
        stall.unit = unit_text(*place->launch->ordered.tensors.front().request->unit);
        stall.device = place->road->device;
        stall.is_launched = phase == cuda::Task::Phase::kLaunched;
        stall.is_given_up = !place->given_up.is_ok();
        stall.age = now - place->posted_at;
      }
    }
    next_stall_look_ = std::min(next_stall_look_, place->next_warning);
  }
  if (stall.operations > 0) logger_.warning(stall_text(stall));
}

// True if it has ended.
bool DeviceLane::end(Place& place) {
  if (place.state == Place::State::kPosted && !place.given_up.is_ok()) take_back(place);
  const bool is_left = place.state == Place::State::kLeftBehind;
  const bool never_posted = place.state == Place::State::kReady && !place.given_up.is_ok();
  const bool is_over =
      place.state == Place::State::kPosted && place.launch->phase() == cuda::Task::Phase::kEnded;
  if (!never_posted && !is_over && !is_left) return false;
  const Status& status = place.given_up.is_ok() ? place.launch->status() : place.given_up;
  if (ended_count_ == ended_.size()) ended_.emplace_back();
  Ended& ended = ended_[ended_count_++];
  ended.status = status;
  ended.is_own_error = !status.is_ok() && place.given_up.is_ok() && !place.road->given_up;
  if (ended.is_own_error) {
    const Unit& unit = *place.launch->ordered.tensors.front().request->unit;
    ended.status = {status.code(), unit_text(unit) + ": " + status.text()};
  }
  if (is_left) {  // the launch thread may still read its own
    ended.status = left_behind(status, options_.patience);
    ended.ordered = place.launch->ordered;
    return true;
  }
  std::swap(ended.ordered, place.launch->ordered);
  for (std::size_t i = 0; status.is_ok() && i < ended.ordered.tensors.size(); ++i) {
    const OrderedOperation::Tensor& tensor = ended.ordered.tensors[i];
    tensor.request->buffers[tensor.index].found = place.launch->nonfinite(i);
  }
  place.state = Place::State::kGone;
  return true;
}

bool DeviceLane::advance() {
  bool moved = post_ready();
  for (const auto& place : line_) moved = end(*place) || moved;
  leave_line();
  warn_of_stall();
  if (!closing_.empty()) close_roads();
  return moved;
}

void DeviceLane::leave_line() {
  for (auto& place : line_) {
    if (place->state == Place::State::kLeftBehind) left_behind_.push_back(std::move(place));
    if (place == nullptr || place->state != Place::State::kGone) continue;
    --place->road->users;
    place->road = nullptr;
    spare_.push_back(std::move(place));
  }
  std::erase(line_, nullptr);
}

// ---- Ending -------------------------------------------------------------------------------------

bool DeviceLane::serves(std::uint32_t process_set) const {
  return std::any_of(line_.begin(), line_.end(),
                     [&](const auto& place) { return place->process_set == process_set; });
}

// Without its lost rank a communicator is of no use, whether it has work now or not.
void DeviceLane::end_beyond(std::uint32_t process_set, std::uint64_t through,
                            const Status& status) {
  const auto give_up = [&](DeviceRoad& road) {
    if (road.communicator == nullptr) return;
    road.given_up = true;
    road.communicator->doom(status);
  };
  for (const auto& place : line_) {
    if (place->process_set != process_set || place->run <= through) continue;
    if (place->given_up.is_ok()) place->given_up = status;
    if (place->state == Place::State::kPosted) give_up(*place->road);
  }
  if (process_set == 0) gpus_.refuse(status, options_.patience);
  if (status.code() != StatusCode::kPeerLost) return;
  for (auto& [key, road] : roads_) {
    if (key.first == process_set) give_up(*road);
  }
  for (auto& road : closing_) {
    if (road->process_set == process_set) give_up(*road);
  }
}

void DeviceLane::end_all(const Status& status) {
  for (const auto& place : line_) {
    if (place->given_up.is_ok()) place->given_up = status;
  }
  gpus_.refuse(status, options_.patience);
  for (auto& [key, road] : roads_) {
    road->given_up = true;
    if (road->communicator != nullptr) road->communicator->doom(status);
  }
  for (auto& road : closing_) {
    if (road->communicator != nullptr) road->communicator->doom(status);
  }
}

void DeviceLane::close_set(std::uint32_t process_set) {
  for (auto it = roads_.lower_bound(KeyView(process_set, {}));
       it != roads_.end() && it->first.first == process_set;) {
    closing_.push_back(std::move(it->second));
    it = roads_.erase(it);
  }
}

void DeviceLane::close_roads() {
  std::erase_if(closing_, [&](const std::unique_ptr<DeviceRoad>& road) {
    if (road->users > 0) return false;
    if (road->communicator == nullptr && road->close == nullptr) return true;
    if (road->close == nullptr) {
      road->close = std::make_unique<DeviceRoad::Close>(*road);
      gpus_.thread().post(*road->close);
    }
    return road->close->phase() == cuda::Task::Phase::kEnded;
  });
}

void DeviceLane::release() {
  for (auto& [key, road] : roads_) road->communicator.reset();
  for (auto& road : closing_) road->communicator.reset();
  for (const StopPtr& stop : stops_) stop->staged.release(gpus_.runtime());
}

}  // namespace kolo::internal
