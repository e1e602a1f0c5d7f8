#include "tests/multiproc/random/flight.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace kolo::programs {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void fail(const Here& here, const std::string& what) {
  std::fprintf(stderr, "random program: rank %d, seed %llu: %s (last error: %s)\n  again: %s\n",
               here.rank, static_cast<unsigned long long>(here.program->seed), what.c_str(),
               kolo_last_error(), here.replay.c_str());
  std::fflush(nullptr);
  ::_exit(kFailed);
}

void expect(const Here& here, kolo_status got, kolo_status want, const std::string& what) {
  if (got == want) return;
  fail(here, what + ": " + kolo_status_string(got) + " instead of " + kolo_status_string(want));
}

Flight::Flight(Here& here, Run run, Finish finish, Rng& random)
    : here_(here),
      run_(std::move(run)),
      mine_(as_submitted(*run_.operation, here.rank)),
      place_(static_cast<std::size_t>(run_.set->place_of(here.rank))),
      finish_(finish),
      label_(mine_.name) {
  const bool changes_sets = mine_.kind == Kind::kCreate || mine_.kind == Kind::kDestroy;
  asks_result_ = here_.abilities.all_collectives && !changes_sets && random.chance(30);
  if (mine_.kind == Kind::kCreate) {
    for (const int rank : here_.program->sets[static_cast<std::size_t>(mine_.root)].ranks) {
      set_ranks_.push_back(rank);
    }
    random.shuffle(set_ranks_);
  }
  if (is_wrong(*run_.operation, here_.rank) && mine_.wrong == Wrong::kRefused) {
    shape_ = {static_cast<std::int64_t>(count_argument()) + 1};
  } else if (mine_.matrix) {
    shape_ = {static_cast<std::int64_t>(count_argument()), 1};
  }
  make_memory(random);
  fill();
}

Flight::~Flight() { kolo_request_free(here_.context, &request_); }

std::string Flight::text() const {
  return text_of(*run_.operation) + (in_place_ ? " in place" : "") + ", participants " +
         std::to_string(run_.participants());
}

void Flight::make_memory(Rng& random) {
  const std::size_t width = bytes_of(mine_.dtype);
  Run mine = run_;
  mine.operation = &mine_;
  mine.present.assign(mine.present.size(), true);  // the caller does not know who has joined
  const std::size_t input = input_elements(mine_, place_, run_.size()) * width;
  const std::size_t output = output_elements(mine, place_) * width;
  const std::size_t offset = offset_of(mine_, place_) * width;
  in_place_ = mine_.kind != Kind::kAlltoall && !mine_.allocate && random.chance(40);
  const bool is_root = mine_.kind != Kind::kBroadcast || mine_.root == here_.rank;
  null_input_ = !in_place_ && !is_root && random.chance(50);
  if (mine_.kind == Kind::kReduceScatter && in_place_) {
    input_ = Block(here_.context, input, random);
    read_ = input_.data();
    written_ = input_.data() + offset;
    return;
  }
  if (!mine_.allocate) {
    output_ = Block(here_.context, output, random);
    written_ = output_.data();
  }
  if (in_place_) {
    read_ = output_.data() + (mine_.kind == Kind::kAllgather ? offset : 0);
  } else if (!null_input_) {
    input_ = Block(here_.context, input, random);
    read_ = input_.data();
  }
}

void Flight::fill() {
  if (read_ != nullptr) {
    const Bytes values =
        input_at(mine_, run_.key, place_, input_elements(mine_, place_, run_.size()));
    if (!values.empty()) std::memcpy(const_cast<void*>(read_), values.data(), values.size());
  }
  input_before_ = input_.copy();
  output_before_ = output_.copy();
}

void Flight::renew(std::uint64_t key) {
  run_.key = key;
  finished_ = false;
  submitted_ = false;
  fill();
}

std::size_t Flight::count_argument() const {
  if (mine_.kind == Kind::kAlltoall && mine_.blocks.empty()) return mine_.count;
  if (mine_.kind == Kind::kReduceScatter) {
    return mine_.counts.empty() ? mine_.count : mine_.counts[place_];
  }
  return input_elements(mine_, place_, run_.size());
}

kolo_options Flight::options() {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = label_.empty() ? nullptr : label_.c_str();
  if (!shape_.empty()) {
    options.shape = shape_.data();
    options.ndim = static_cast<std::int32_t>(shape_.size());
  }
  if (mine_.kind != Kind::kCreate && mine_.kind != Kind::kDestroy) {
    options.pset = here_.psets[static_cast<std::size_t>(mine_.set)];
  }
  options.prescale = mine_.prescale;
  options.postscale = mine_.postscale;
  options.persistent = mine_.persistent ? 1 : 0;
  options.allocate = mine_.allocate ? 1 : 0;
  if (!mine_.allocate && !mine_.counts.empty()) options.recv_counts = mine_.counts.data();
  if (!mine_.blocks.empty()) {
    send_counts_ = mine_.blocks[place_];
    options.send_counts = send_counts_.data();
    receive_counts_.clear();
    for (const auto& from : mine_.blocks) receive_counts_.push_back(from[place_]);
    if (!mine_.allocate) options.recv_counts = receive_counts_.data();
  }
  if (has_callback()) {
    options.callback = on_done;
    options.user = this;
  }
  if (asks_result_) options.result = &result_;
  return options;
}

kolo_status Flight::call_set(const kolo_options& options, kolo_request* request) {
  std::int32_t& pset = here_.psets[static_cast<std::size_t>(mine_.root)];
  if (mine_.kind == Kind::kDestroy) {
    return kolo_pset_destroy(here_.context, pset, &options, request);
  }
  return kolo_pset_create(here_.context, set_ranks_.data(), set_ranks_.size(), &pset, &options,
                          request);
}

kolo_status Flight::call(const kolo_options& options, kolo_request* request) {
  kolo_context* context = here_.context;
  const std::size_t count = count_argument();
  const kolo_dtype dtype = mine_.dtype;
  switch (mine_.kind) {
    case Kind::kAllreduce:
      return kolo_allreduce(context, read_, written_, count, dtype, mine_.op, &options, request);
    case Kind::kReduceScatter:
      return kolo_reduce_scatter(context, read_, written_, count, dtype, mine_.op, &options,
                                 request);
    case Kind::kAllgather:
      return kolo_allgather(context, read_, written_, count, dtype, &options, request);
    case Kind::kAlltoall:
      return kolo_alltoall(context, read_, written_, count, dtype, &options, request);
    case Kind::kBroadcast:
      return kolo_broadcast(context, read_, written_, count, dtype, mine_.root, &options, request);
    case Kind::kBarrier: return kolo_barrier(context, &options, request);
    case Kind::kCreate:
    case Kind::kDestroy: break;
  }
  return call_set(options, request);
}

void Flight::submit() {
  if (!mine_.persistent || request_ == KOLO_REQUEST_NULL) {
    const kolo_options options = this->options();
    const bool has_request = finish_ != Finish::kBlock && finish_ != Finish::kGroup;
    const kolo_status status = call(options, has_request ? &request_ : nullptr);
    if (refused()) {
      expect(here_, status, KOLO_INVALID_ARGUMENT, text() + ", refused");
      set_finished(status);
    } else if (finish_ == Finish::kBlock) {
      set_finished(status);
    } else {
      expect(here_, status, KOLO_OK, text() + ", its call");
    }
  }
  if (mine_.persistent) {
    expect(here_, kolo_start(here_.context, &request_, 1), KOLO_OK, text() + ", its start");
  }
  if (finish_ == Finish::kCallback && !mine_.persistent && !finished_) {
    expect(here_, kolo_request_free(here_.context, &request_), KOLO_OK, text() + ", giving it up");
  }
  ++submissions_;
  submitted_.store(true);
}

void Flight::on_done(kolo_status status, const char* text, void* user) {
  auto& flight = *static_cast<Flight*>(user);
  if ((status == KOLO_OK) != (text[0] == '\0')) fail(flight.here_, flight.text() + ": " + text);
  for (Flight* follower : flight.followers_) follower->submit();
  flight.told_.store(status);
  flight.calls_.fetch_add(1);
}

void Flight::await_callback() {
  const auto end = Clock::now() + std::chrono::milliseconds(kLimitMs);
  while (calls_.load() < submissions_) {
    if (Clock::now() > end) fail(here_, text() + ": its callback does not come");
    std::this_thread::yield();
  }
  if (calls_.load() != submissions_) fail(here_, text() + ": a second callback");
}

void Flight::finish() {
  const auto end = Clock::now() + std::chrono::milliseconds(kLimitMs);
  while (!submitted_.load()) {
    if (Clock::now() > end) fail(here_, text() + ": the callback it follows does not come");
    std::this_thread::yield();
  }
  if (finished_) return;
  if (finish_ == Finish::kTest) {
    std::int32_t done = 0;
    while (done == 0) {
      status_ = kolo_test(here_.context, &request_, &done);
      if (Clock::now() > end) fail(here_, text() + ": is not done in time");
    }
  } else if (finish_ != Finish::kCallback) {
    status_ = kolo_wait(here_.context, &request_, kLimitMs);
  }
  if (has_callback()) {
    await_callback();
    if (finish_ == Finish::kBoth) expect(here_, told_.load(), status_, text() + ", its callback");
    status_ = told_.load();
  }
  if (!mine_.persistent && !mine_.allocate && request_ != KOLO_REQUEST_NULL) {
    fail(here_, text() + ": its request is still there");
  }
  finished_ = true;
}

void Flight::check() {
  expect(here_, status_, expected_, text());
  if (status_ == KOLO_OK) {
    check_output();
  } else {
    check_untouched();
  }
  for (const Block* block : {&input_, &output_}) {
    if (block->data() != nullptr && !block->guards_hold()) {
      fail(here_, text() + ": memory beside the tensor was written");
    }
  }
  if (mine_.allocate) kolo_request_free(here_.context, &request_);
}

void Flight::compare(const std::byte* got) const {
  const std::string text = difference(mine_, got, output_at(run_, place_));
  if (!text.empty()) fail(here_, this->text() + ": " + text);
}

void Flight::check_output() {
  if (mine_.kind == Kind::kCreate || mine_.kind == Kind::kDestroy) return check_set();
  if (mine_.allocate) {
    check_allocated();
  } else {
    compare(static_cast<std::byte*>(written_));
  }
  check_input();
  if (asks_result_) check_result();
}

void Flight::check_input() const {
  const Bytes now = input_.copy();
  const std::size_t width = bytes_of(mine_.dtype);
  // In place, a reduce-scatter's own block holds the result.
  const bool scattered = mine_.kind == Kind::kReduceScatter && in_place_;
  const std::size_t begin = scattered ? offset_of(mine_, place_) * width : now.size();
  const std::size_t end = scattered ? begin + count_argument() * width : now.size();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (i >= begin && i < end) continue;
    if (now[i] != input_before_[i]) {
      fail(here_, text() + ": byte " + std::to_string(i) + " of its input was changed");
    }
  }
}

void Flight::check_result() const {
  if (result_.participants != run_.participants()) {
    fail(here_, text() + ": its result tells of " + std::to_string(result_.participants) +
                    " participants");
  }
  if (mine_.allocate || mine_.kind == Kind::kBarrier) return;
  const std::int64_t want =
      nonfinite_in(mine_.dtype, static_cast<std::byte*>(written_), output_elements(run_, place_));
  if (result_.nonfinite != want) {
    fail(here_, text() + ": its result counts " + std::to_string(result_.nonfinite) +
                    " non-finite numbers instead of " + std::to_string(want));
  }
}

void Flight::check_allocated() {
  void* output = nullptr;
  std::size_t count = 0;
  const std::size_t* counts = nullptr;
  expect(here_, kolo_request_output(here_.context, request_, &output, &count, &counts), KOLO_OK,
         text() + ", kolo_request_output");
  const std::vector<std::size_t> want = received(run_, place_);
  if (output == nullptr || counts == nullptr) fail(here_, text() + ": a null output");
  if (std::vector<std::size_t>(counts, counts + want.size()) != want ||
      count != output_elements(run_, place_)) {
    fail(here_, text() + ": " + std::to_string(count) + " elements instead of " +
                    std::to_string(output_elements(run_, place_)));
  }
  compare(static_cast<std::byte*>(output));
}

void Flight::check_untouched() const {
  if (input_.copy() != input_before_ || output_.copy() != output_before_) {
    fail(here_, text() + ": it failed, and its buffers were touched");
  }
}

void Flight::check_set() const {
  const std::int32_t pset = here_.psets[static_cast<std::size_t>(mine_.root)];
  const std::vector<int>& want = here_.program->sets[static_cast<std::size_t>(mine_.root)].ranks;
  std::vector<std::int32_t> ranks(want.size());
  std::size_t count = 0;
  const kolo_status status =
      kolo_pset_ranks(here_.context, pset, ranks.data(), ranks.size(), &count);
  if (mine_.kind == Kind::kDestroy) {
    return expect(here_, status, KOLO_INVALID_ARGUMENT, text() + ", the ranks of what has ended");
  }
  expect(here_, status, KOLO_OK, text() + ", its ranks");
  if (pset <= 0 || count != want.size() || !std::equal(want.begin(), want.end(), ranks.begin())) {
    fail(here_, text() + ": other ranks than asked for");
  }
}

}  // namespace kolo::programs
