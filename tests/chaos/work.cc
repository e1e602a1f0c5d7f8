#include "tests/chaos/work.h"

#include <algorithm>
#include <cstring>

namespace kolo::chaos {
namespace {

using internal::mix;
using internal::Rng;
using programs::Kind;
using programs::Operation;

constexpr std::byte kScribble{0x3c};

// Between the two, every power as likely as the next.
std::size_t draw_bytes(Rng& random, std::size_t least, std::size_t most) {
  std::size_t span = least;
  while (span * 2 <= most && random.chance(80)) span *= 2;
  return span + random.below(span);
}

Operation draw_operation(Rng& random, int id, std::size_t bytes, int size) {
  Operation operation;
  operation.id = id;
  operation.name = "t" + std::to_string(id);
  operation.kind =
      random.pick<Kind>({Kind::kAllreduce, Kind::kAllreduce, Kind::kAllreduce, Kind::kReduceScatter,
                         Kind::kAllgather, Kind::kAlltoall, Kind::kBroadcast});
  operation.dtype = random.pick<kolo_dtype>({KOLO_FLOAT32, KOLO_FLOAT32, KOLO_FLOAT16,
                                             KOLO_BFLOAT16, KOLO_FLOAT64, KOLO_INT32, KOLO_UINT8});
  operation.op = random.pick<kolo_op>({KOLO_SUM, KOLO_SUM, KOLO_AVG, KOLO_MAX, KOLO_MIN});
  operation.root = random.below(size);
  const bool by_blocks = operation.kind != Kind::kAllreduce && operation.kind != Kind::kBroadcast;
  const std::size_t blocks = by_blocks ? static_cast<std::size_t>(size) : 1;
  operation.count = std::max<std::size_t>(1, bytes / blocks / programs::bytes_of(operation.dtype));
  return operation;
}

// Large tensors repeat their first elements, so that the plain loops need not take long. A prime
// number of them: what lies in the wrong place is told apart.
constexpr std::size_t kPeriod = 4099;

// Blocks of `from` bytes each become blocks of `to`.
programs::Bytes repeat(const programs::Bytes& blocks, std::size_t from, std::size_t to) {
  if (from == to) return blocks;
  programs::Bytes longer(blocks.size() / from * to);
  for (std::size_t block = 0; block * to < longer.size(); ++block) {
    for (std::size_t at = 0; at < to; at += from) {
      std::memcpy(longer.data() + block * to + at, blocks.data() + block * from,
                  std::min(from, to - at));
    }
  }
  return longer;
}

}  // namespace

Work::Work(const Plan& plan, int rank, Witness& witness)
    : plan_(plan), rank_(rank), witness_(witness) {
  for (int other = 0; other < plan.size(); ++other) {
    world_.ranks.push_back(other);
    hosts_.push_back(plan.host_of(other));
  }
  if (plan.workload == Workload::kMixed) {
    draw_mixed();
    return;
  }
  Operation large;
  large.name = "large";
  large.count = std::size_t{plan.workload == Workload::kAllreduce4M ? 1U : 16U} << 20;
  add(large, plan.workload == Workload::kAllreduce4M ? kVariants : 1);
}

void Work::draw_mixed() {
  Rng random(mix(plan_.seed) + 7);
  const auto largest = static_cast<std::size_t>(plan_.largest_bytes);
  const int size = plan_.size();
  int id = 0;
  for (int i = 0; i < 4; ++i)
    add(draw_operation(random, id++, 1 + random.below(std::uint64_t{40}), size), 2);
  for (int i = 0; i < 3; ++i) {
    add(draw_operation(random, id++, draw_bytes(random, 64, 32 << 10), size), 2);
  }
  for (int i = 0; i < 3; ++i) {
    add(draw_operation(random, id++, draw_bytes(random, 64 << 10, largest), size), 2);
  }
  add(draw_operation(random, id++, largest, size), 1);
}

void Work::add(Operation operation, int variants) {
  const auto place = static_cast<std::size_t>(rank_);
  Operation first = operation;  // its beginning
  first.count = std::min(operation.count, kPeriod);
  programs::Run run;
  run.operation = &first;
  run.set = &world_;
  run.hosts = hosts_;
  run.present.assign(world_.ranks.size(), true);
  const std::size_t width = programs::bytes_of(operation.dtype);
  const std::size_t elements = programs::input_elements(first, place, run.size());
  const std::size_t block_bytes = operation.count * width;
  const auto whole = [&](const programs::Bytes& beginning) {
    return repeat(beginning, first.count * width, block_bytes);
  };
  Tensor tensor(operation, elements / first.count * block_bytes,
                programs::output_elements(run, place) / first.count * block_bytes);
  Rng random(mix(plan_.seed + static_cast<std::uint64_t>(operation.id)) + place);
  tensor.in_place = operation.kind == Kind::kAllreduce && random.chance(50);
  tensor.in_kolos_memory = random.chance(30);
  for (int variant = 0; variant < variants; ++variant) {
    run.key = mix(plan_.seed * 64 + static_cast<std::uint64_t>(operation.id * 2 + variant)) | 1;
    tensor.inputs.push_back(whole(programs::input_at(first, run.key, place, elements)));
    tensor.results.push_back(whole(programs::output_at(run, place)));
  }
  tensors_.push_back(std::move(tensor));
}

void Work::attach(kolo_context* context) {
  context_ = context;
  for (Tensor& tensor : tensors_) {
    if (!tensor.in_kolos_memory) continue;
    tensor.input.move_into(context);
    tensor.output.move_into(context);
  }
}

void Work::fill(Tensor& tensor, std::size_t variant) const {
  const programs::Bytes& input = tensor.inputs[variant];
  std::fill_n(tensor.output.data(), tensor.output.bytes(), kScribble);
  std::byte* to = tensor.in_place ? tensor.output.data() : tensor.input.data();
  std::memcpy(to, input.data(), input.size());
}

kolo_status Work::call(Tensor& tensor, kolo_request* request) const {
  const Operation& what = tensor.operation;
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = what.name.c_str();
  void* output = tensor.output.data();
  const void* input = tensor.in_place ? output : tensor.input.data();
  switch (what.kind) {
    case Kind::kAllreduce:
      return kolo_allreduce(context_, input, output, what.count, what.dtype, what.op, &options,
                            request);
    case Kind::kReduceScatter:
      return kolo_reduce_scatter(context_, input, output, what.count, what.dtype, what.op, &options,
                                 request);
    case Kind::kAllgather:
      return kolo_allgather(context_, input, output, what.count, what.dtype, &options, request);
    case Kind::kAlltoall:
      // Its count is of one block.
      return kolo_alltoall(context_, input, output, what.count, what.dtype, &options, request);
    default:
      return kolo_broadcast(context_, input, output, what.count, what.dtype, what.root, &options,
                            request);
  }
}

bool Work::submit(Tensor& tensor, bool blocks) {
  const kolo_status status =
      witness_.watch([&] { return call(tensor, blocks ? nullptr : &tensor.request); });
  tensor.complete = blocks && status == KOLO_OK;
  tensor.pending = !blocks && status == KOLO_OK;
  return status == KOLO_OK;
}

bool Work::step(std::uint64_t number, bool ends, std::int64_t hold_us) {
  Rng common(mix(plan_.seed ^ mix(number)));
  Rng own(mix(plan_.seed + number) + static_cast<std::uint64_t>(rank_));
  std::vector<Tensor*> chosen;
  for (Tensor& tensor : tensors_) {
    if (tensors_.size() == 1 || common.chance(50)) chosen.push_back(&tensor);
  }
  own.shuffle(chosen);
  const std::size_t variant = number % kVariants;
  for (Tensor* tensor : chosen) {
    tensor->pending = tensor->complete = false;
    fill(*tensor, variant % tensor->inputs.size());
  }
  if (hold_us > 0) sleep_us(hold_us);

  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "again";
  again_ = ends ? 1 : 0;
  kolo_request again = KOLO_REQUEST_NULL;
  const bool last_blocks = own.chance(40);
  bool well = witness_.watch([&] {
    return kolo_allreduce(context_, &again_, &again_, 1, KOLO_INT64, KOLO_MAX, &options, &again);
  }) == KOLO_OK;
  for (Tensor* tensor : chosen) {
    if (well) well = submit(*tensor, last_blocks && tensor == chosen.back());
  }
  if (again != KOLO_REQUEST_NULL) {
    witness_.watch([&] { return kolo_wait(context_, &again, KOLO_FOREVER); });
  }
  finish(chosen, own);
  for (Tensor* tensor : chosen) check(*tensor, variant % tensor->inputs.size());
  if (witness_.has_failed()) {
    witness_.cell().pending_ended = monotonic_ns();
    return false;
  }
  witness_.cell().steps.fetch_add(1);
  return again_ == 0;
}

void Work::finish_by_tests(Tensor& tensor) {
  const kolo_status status = witness_.watch([&] {
    std::int32_t done = 0;
    kolo_status result = KOLO_OK;
    while (result == KOLO_OK && done == 0) result = kolo_test(context_, &tensor.request, &done);
    return result;
  });
  tensor.complete = status == KOLO_OK;
}

void Work::finish(const std::vector<Tensor*>& chosen, Rng& random) {
  std::vector<Tensor*> pending;
  for (Tensor* tensor : chosen) {
    if (tensor->pending) pending.push_back(tensor);
  }
  random.shuffle(pending);
  if (random.chance(30)) {
    std::vector<kolo_request> requests;
    for (const Tensor* tensor : pending) requests.push_back(tensor->request);
    const kolo_status all = witness_.watch(
        [&] { return kolo_wait_all(context_, requests.data(), requests.size(), KOLO_FOREVER); });
    for (Tensor* tensor : pending) {
      tensor->pending = false;
      tensor->complete = all == KOLO_OK;
    }
    return;
  }
  for (Tensor* tensor : pending) {
    tensor->pending = false;
    if (random.chance(20)) {
      finish_by_tests(*tensor);
      continue;
    }
    tensor->complete = witness_.watch([&] {
      return kolo_wait(context_, &tensor->request, KOLO_FOREVER);
    }) == KOLO_OK;
  }
}

void Work::check(Tensor& tensor, std::size_t variant) {
  const std::string text = programs::text_of(tensor.operation);
  if (!tensor.input.canaries_live() || !tensor.output.canaries_live()) {
    witness_.complain("a canary beside " + text + " is dead");
  }
  if (!tensor.complete) return;
  const std::string difference =
      programs::difference(tensor.operation, tensor.output.data(), tensor.results[variant]);
  if (!difference.empty()) witness_.complain(text + ": " + difference);
}

void Work::abandon() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    if ((i + plan_.seed) % 2 == 0) {
      if (!tensor.input.is_kolos()) tensor.input.unmap();
      if (!tensor.output.is_kolos()) tensor.output.unmap();
    }
    tensor.seen[0] = tensor.input.checksum();
    tensor.seen[1] = tensor.output.checksum();
  }
}

void Work::check_abandoned() const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.seen[0] == tensor.input.checksum() && tensor.seen[1] == tensor.output.checksum()) {
      continue;
    }
    witness_.complain("a buffer of " + programs::text_of(tensor.operation) +
                      " changed after its call had returned");
  }
}

}  // namespace kolo::chaos
