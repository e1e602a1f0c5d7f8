#include "coordinator/frame.h"

#include <algorithm>
#include <functional>

#include "coordinator/messages.pb.h"
#include "coordinator/personal_counts.h"
#include "coordinator/slot_board.h"

namespace kolo::internal {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxDims = 64;
constexpr std::uint32_t kMaxDevices = 1 << 16;

Status malformed(const char* what) {
  return invalid_argument(std::string("malformed control frame: ") + what);
}

void put(const TensorSpec& spec, wire::Tensor& out) {
  out.set_name(spec.name);
  out.set_kind(static_cast<std::int32_t>(spec.kind));
  out.set_dtype(static_cast<std::int32_t>(spec.dtype));
  out.set_op(static_cast<std::int32_t>(spec.op));
  out.set_root(spec.root);
  out.set_count(spec.count);
  for (const std::int64_t dim : spec.shape) out.add_shape(dim);
  out.set_prescale(spec.prescale);
  out.set_postscale(spec.postscale);
  out.mutable_counts()->Add(spec.counts.begin(), spec.counts.end());
  out.mutable_receive_counts()->Add(spec.receive_counts.begin(), spec.receive_counts.end());
  out.set_open(spec.open);
  out.set_device(static_cast<std::uint32_t>(spec.device + 1));
  for (const std::int32_t device : spec.devices) {
    out.add_devices(static_cast<std::uint32_t>(device + 1));
  }
}

void put(const Unit& unit, wire::Unit& out) {
  out.set_process_set(unit.key.process_set);
  out.set_name(unit.key.name);
  out.set_group(unit.group);
  out.set_numbered(unit.numbered);
  for (const TensorSpec& spec : unit.tensors) put(spec, *out.add_tensors());
  out.set_invalid(unit.invalid);
}

void put(const UnitKey& key, wire::Key& out) {
  out.set_process_set(key.process_set);
  out.set_name(key.name);
}

template <typename Repeated>
void put_ranks(const std::vector<int>& ranks, Repeated& out) {
  for (const int rank : ranks) out.Add(static_cast<std::uint32_t>(rank));
}

void put(const Run& run, wire::Run& out) {
  for (const UnitOrder& order : run.units) {
    wire::UnitOrder& unit = *out.add_units();
    unit.set_id(order.id);
    if (order.first_sight || order.id == 0) put(*order.unit, *unit.mutable_unit());
    put_ranks(order.absent, *unit.mutable_absent());
    for (const std::string& payload : order.payloads) unit.add_payloads(payload);
    if (order.slot) unit.set_slot(*order.slot + 1);
    unit.set_inlined(order.inlined);
    unit.set_new_set(order.new_set);
    for (const auto& counts : order.counts) {
      unit.add_counts()->mutable_values()->Add(counts.begin(), counts.end());
    }
  }
  for (const auto& cut : run.cuts) {
    wire::Cut& places = *out.add_cuts();
    for (const std::uint32_t place : cut) places.add_tensors(place);
  }
}

void put(const Failure& failure, wire::Failure& out) {
  put(failure.key, *out.mutable_key());
  put_ranks(failure.ranks, *out.mutable_ranks());
  out.set_code(static_cast<std::int32_t>(failure.status.code()));
  out.set_text(failure.status.text());
}

void put(const Item& item, wire::Item& out) {
  if (const auto* run = std::get_if<Run>(&item)) {
    put(*run, *out.mutable_run());
  } else if (const auto* failure = std::get_if<Failure>(&item)) {
    put(*failure, *out.mutable_failure());
  } else if (const auto* evict = std::get_if<Evict>(&item)) {
    out.mutable_evict()->set_id(evict->id);
    put_ranks(evict->taken, *out.mutable_evict()->mutable_taken());
  } else {
    const auto& done = std::get<JoinDone>(item);
    out.mutable_join_done()->set_process_set(done.process_set);
    out.mutable_join_done()->set_last_rank(static_cast<std::uint32_t>(done.last_rank));
  }
}

bool get_rank(std::uint32_t from, int& rank) {
  if (from >= kMaxRanks) return false;
  rank = static_cast<int>(from);
  return true;
}

template <typename Repeated>
bool get_ranks(const Repeated& from, std::vector<int>& ranks) {
  for (const std::uint32_t value : from) {
    int rank = 0;
    if (!get_rank(value, rank)) return false;
    ranks.push_back(rank);
  }
  return true;
}

Status check_counts(const TensorSpec& spec) {
  const bool by_rank = spec.kind == OpKind::kAllgather || spec.kind == OpKind::kReduceScatter ||
                       spec.kind == OpKind::kAlltoall;
  const bool sent = spec.kind == OpKind::kAlltoall && !spec.counts.empty();
  if ((!by_rank && !spec.counts.empty()) || (!sent && !spec.receive_counts.empty()) ||
      (spec.open && (spec.kind != OpKind::kAllgather || !spec.counts.empty()))) {
    return malformed("counts of an operation that has none");
  }
  if (!can_be_held(spec.counts, spec.dtype) || !can_be_held(spec.receive_counts, spec.dtype)) {
    return malformed("too many elements");
  }
  return Status::ok();
}

// The shape of a unit about a process set: its ranks, or its id.
Status check_set_change(const TensorSpec& spec) {
  const auto in_order = [&] {
    return std::adjacent_find(spec.shape.begin(), spec.shape.end(), std::greater_equal<>()) ==
           spec.shape.end();
  };
  if (spec.shape.empty() || spec.shape.front() < 0) return malformed("a process set of nothing");
  if (spec.kind == OpKind::kCreateSet && (spec.shape.back() >= kMaxRanks || !in_order())) {
    return malformed("the ranks of a process set");
  }
  if (spec.kind == OpKind::kDestroySet && (spec.shape.size() != 1 || spec.shape[0] > UINT32_MAX)) {
    return malformed("the id of a process set");
  }
  return Status::ok();
}

Status get_devices(const wire::Tensor& from, TensorSpec& spec) {
  const auto is_wrong = [](std::uint32_t device) { return device > kMaxDevices; };
  if (is_wrong(from.device()) || std::ranges::any_of(from.devices(), is_wrong)) {
    return malformed("the number of a device");
  }
  spec.device = static_cast<std::int32_t>(from.device()) - 1;
  for (const std::uint32_t device : from.devices()) {
    spec.devices.push_back(static_cast<std::int32_t>(device) - 1);
  }
  return Status::ok();
}

// A refused submission is told as it came: its numbers may be anything.
Result<TensorSpec> get(const wire::Tensor& from, bool refused) {
  TensorSpec spec;
  spec.name = from.name();
  if (from.kind() < 0 || from.kind() > static_cast<int>(OpKind::kDestroySet)) {
    return malformed("operation kind");
  }
  spec.kind = static_cast<OpKind>(from.kind());
  spec.dtype = static_cast<DataType>(from.dtype());  // unknown ones may come in refused units
  spec.op = static_cast<ReduceOp>(from.op());
  spec.root = from.root();
  spec.count = from.count();
  const int most_dims = spec.kind == OpKind::kCreateSet ? kMaxRanks : kMaxDims;
  if (!refused && from.shape_size() > most_dims) return malformed("too many dimensions");

  if (!refused && !(is_valid(spec.dtype) && is_valid(spec.op))) {
    return malformed("unknown dtype or op");
  }
  if (!refused && spec.count > kTensorBytesMax / element_bytes(spec.dtype)) {
    return malformed("too many elements");
  }
  spec.shape.assign(from.shape().begin(), from.shape().end());
  spec.prescale = from.prescale();
  spec.postscale = from.postscale();
  spec.counts.assign(from.counts().begin(), from.counts().end());
  spec.receive_counts.assign(from.receive_counts().begin(), from.receive_counts().end());
  spec.open = from.open();
  KOLO_RETURN_IF_ERROR(get_devices(from, spec));
  if (refused) return spec;
  KOLO_RETURN_IF_ERROR(check_counts(spec));
  if (is_set_change(spec.kind)) KOLO_RETURN_IF_ERROR(check_set_change(spec));
  return spec;
}

Result<UnitPtr> get(const wire::Unit& from) {
  auto unit = std::make_shared<Unit>();
  unit->key = {from.process_set(), from.name()};
  unit->group = from.group();
  unit->numbered = from.numbered();
  unit->invalid = from.invalid();
  if (unit->numbered && unit->key.name.empty()) return malformed("a numbered unit without number");
  unit->tensors.reserve(static_cast<std::size_t>(from.tensors_size()));
  for (const wire::Tensor& tensor : from.tensors()) {
    Result<TensorSpec> spec = get(tensor, !unit->invalid.empty());
    if (!spec) return spec.status();
    const bool alone = !unit->group && unit->key.process_set == 0;
    if (unit->invalid.empty() && is_set_change(spec->kind) && !alone) {
      return malformed("a new process set inside of another unit");
    }
    unit->tensors.push_back(*std::move(spec));
  }
  if (unit->tensors.size() != 1 && !unit->group)
    return malformed("a unit of other than one tensor");
  return UnitPtr(std::move(unit));
}

Result<Fact> get(const wire::Fact& from) {
  Fact fact;
  if (from.has_unit()) {
    Result<UnitPtr> unit = get(from.unit());
    if (!unit) return unit.status();
    fact.unit = *std::move(unit);
  } else if (from.id() == 0) {
    return malformed("a fact about nothing");
  }
  fact.id = from.id();
  fact.parity = from.parity() != 0;
  if (!get_ranks(from.ranks(), fact.ranks)) return malformed("rank");
  return fact;
}

Result<Run> get(const wire::Run& from) {
  Run run;
  for (const wire::UnitOrder& unit : from.units()) {
    UnitOrder order;
    order.id = unit.id();
    order.first_sight = unit.has_unit();
    if (unit.has_unit()) {
      Result<UnitPtr> described = get(unit.unit());
      if (!described) return described.status();
      order.unit = *std::move(described);
      if (!order.unit->invalid.empty()) return malformed("an order to run a refused unit");
    } else if (order.id == 0) {
      return malformed("an order without unit");
    }
    if (!get_ranks(unit.absent(), order.absent)) return malformed("rank");
    for (const std::string& payload : unit.payloads()) {
      if (payload.size() > kPayloadBytesMax) return malformed("payload");
      order.payloads.push_back(payload);
    }
    if (unit.slot() > SlotBoard::kSlotsMax) return malformed("slot");
    if (unit.slot() > 0) order.slot = unit.slot() - 1;
    order.inlined = unit.inlined();
    order.new_set = unit.new_set();
    for (const wire::Counts& counts : unit.counts()) {
      order.counts.emplace_back(counts.values().begin(), counts.values().end());
    }
    run.units.push_back(std::move(order));
  }
  for (const wire::Cut& cut : from.cuts()) {
    run.cuts.emplace_back(cut.tensors().begin(), cut.tensors().end());
  }
  return run;
}

Result<Item> get(const wire::Item& from) {
  switch (from.what_case()) {
    case wire::Item::kRun: {
      Result<Run> run = get(from.run());
      if (!run) return run.status();
      return Item(*std::move(run));
    }
    case wire::Item::kFailure: {
      const wire::Failure& wire_failure = from.failure();
      const auto code = static_cast<StatusCode>(wire_failure.code());
      if (code <= StatusCode::kOk || code > kLastStatusCode) {
        return malformed("a failure that is none");
      }
      Failure failure{{wire_failure.key().process_set(), wire_failure.key().name()},
                      {},
                      {code, wire_failure.text()}};
      if (!get_ranks(wire_failure.ranks(), failure.ranks)) return malformed("rank");
      return Item(std::move(failure));
    }
    case wire::Item::kEvict: {
      Evict evict{from.evict().id()};
      if (!get_ranks(from.evict().taken(), evict.taken)) return malformed("rank");
      return Item(std::move(evict));
    }
    case wire::Item::kJoinDone: {
      JoinDone done{from.join_done().process_set(), 0};
      if (!get_rank(from.join_done().last_rank(), done.last_rank)) return malformed("rank");
      return Item(done);
    }
    case wire::Item::WHAT_NOT_SET: break;
  }
  return malformed("unknown item");
}

Status get_reports(const wire::Frame& from, Frame& frame) {
  for (const wire::Fact& wire_fact : from.facts()) {
    Result<Fact> fact = get(wire_fact);
    if (!fact) return fact.status();
    frame.facts.push_back(*std::move(fact));
  }
  for (const wire::Payload& wire_payload : from.payloads()) {
    Payload payload{wire_payload.toggle() >> 1, (wire_payload.toggle() & 1) != 0, 0,
                    wire_payload.data()};
    if (payload.bytes.size() > kPayloadBytesMax) return malformed("payload");
    if (!get_rank(wire_payload.rank(), payload.rank)) return malformed("rank");
    frame.payloads.push_back(std::move(payload));
  }
  for (const std::uint64_t toggle : from.toggles()) {
    frame.toggles.push_back({toggle >> 1, (toggle & 1) != 0});
  }
  for (const wire::Joined& wire_joined : from.joined()) {
    Joined joined{wire_joined.process_set(), 0};
    if (!get_rank(wire_joined.rank(), joined.rank)) return malformed("rank");
    frame.joined.push_back(joined);
  }
  for (const wire::Expiry& wire_expiry : from.expired()) {
    Expiry expiry{
        {wire_expiry.key().process_set(), wire_expiry.key().name()}, 0, wire_expiry.mark()};
    if (!get_rank(wire_expiry.rank(), expiry.rank)) return malformed("rank");
    frame.expired.push_back(std::move(expiry));
  }
  return Status::ok();
}

Status get_notices(const wire::Frame& from, Frame& frame) {
  for (const wire::Notice& wire_notice : from.notices()) {
    if (wire_notice.kind() < 0 || wire_notice.kind() > 2) return malformed("notice kind");
    Notice notice{static_cast<Notice::Kind>(wire_notice.kind()), 0, wire_notice.text(), {}};
    if (wire_notice.through_size() % 2 != 0) return malformed("notice");
    for (int i = 0; i < wire_notice.through_size(); i += 2) {
      notice.through[static_cast<std::uint32_t>(wire_notice.through(i))] =
          wire_notice.through(i + 1);
    }
    if (!get_rank(wire_notice.rank(), notice.rank)) return malformed("rank");
    frame.notices.push_back(std::move(notice));
  }
  return Status::ok();
}

}  // namespace

std::string encode(const Frame& frame) {
  wire::Frame out;
  out.set_generation(frame.generation);
  for (const Fact& fact : frame.facts) {
    wire::Fact& wire_fact = *out.add_facts();
    if (fact.unit) put(*fact.unit, *wire_fact.mutable_unit());
    wire_fact.set_id(fact.id);
    wire_fact.set_parity(fact.parity ? 1 : 0);
    put_ranks(fact.ranks, *wire_fact.mutable_ranks());
  }
  for (const Payload& payload : frame.payloads) {
    wire::Payload& wire_payload = *out.add_payloads();
    wire_payload.set_toggle(payload.id << 1 | (payload.parity ? 1 : 0));
    wire_payload.set_rank(static_cast<std::uint32_t>(payload.rank));
    wire_payload.set_data(payload.bytes);
  }
  for (const Toggle& toggle : frame.toggles) {
    out.add_toggles(toggle.id << 1 | (toggle.parity ? 1 : 0));
  }
  for (const Joined& joined : frame.joined) {
    wire::Joined& wire_joined = *out.add_joined();
    wire_joined.set_process_set(joined.process_set);
    wire_joined.set_rank(static_cast<std::uint32_t>(joined.rank));
  }
  for (const Expiry& expiry : frame.expired) {
    wire::Expiry& wire_expiry = *out.add_expired();
    put(expiry.key, *wire_expiry.mutable_key());
    wire_expiry.set_rank(static_cast<std::uint32_t>(expiry.rank));
    wire_expiry.set_mark(expiry.mark);
  }
  for (const Item& item : frame.items) put(item, *out.add_items());
  for (const Notice& notice : frame.notices) {
    wire::Notice& wire_notice = *out.add_notices();
    wire_notice.set_kind(static_cast<std::int32_t>(notice.kind));
    wire_notice.set_rank(static_cast<std::uint32_t>(notice.rank));
    wire_notice.set_text(notice.text);
    for (const auto& [set, runs] : notice.through) {
      wire_notice.add_through(set);
      wire_notice.add_through(runs);
    }
  }
  out.set_host_evictions(frame.host_evictions);
  out.set_root_evictions(frame.root_evictions);
  return out.SerializeAsString();
}

Result<Frame> decode(std::string_view bytes) {
  wire::Frame from;
  if (!from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return malformed("not a Frame message");
  }
  Frame frame;
  frame.generation = from.generation();
  KOLO_RETURN_IF_ERROR(get_reports(from, frame));
  for (const wire::Item& wire_item : from.items()) {
    Result<Item> item = get(wire_item);
    if (!item) return item.status();
    frame.items.push_back(*std::move(item));
  }
  KOLO_RETURN_IF_ERROR(get_notices(from, frame));
  frame.host_evictions = from.host_evictions();
  frame.root_evictions = from.root_evictions();
  return frame;
}

}  // namespace kolo::internal
