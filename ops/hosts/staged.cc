#include "ops/hosts/staged.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace kolo::internal {

void StagedOperation::begin(const Communicator& communicator, const HostsView& view,
                            WindowOperations& local) {
  KOLO_CHECK(done_ || !failure_.is_ok());
  communicator_ = communicator;
  view_ = view;
  local_ = &local;
  current_ = nullptr;
  stage_ = 0;
  failure_ = Status::ok();
  done_ = false;
}

Result<Progress> StagedOperation::advance() {
  if (!failure_.is_ok()) return failure_;
  if (done_) return Progress::kDone;
  if (current_ == nullptr) {
    try {
      current_ = next(stage_++);
    } catch (const std::bad_alloc&) {
      fail(resource_error("no memory for a stage of a collective; free some"));
      return failure_;
    }
  }
  if (current_ == nullptr) {
    done_ = true;
    return Progress::kDone;
  }
  const Result<Progress> progress = current_->advance();
  if (!progress) {
    fail(progress.status());
    return failure_;
  }
  if (*progress != Progress::kDone) return progress;
  current_ = nullptr;
  return Progress::kMoved;
}

void StagedOperation::fail(Status status) {
  failure_ = std::move(status);
  if (current_ != nullptr) current_->cancel();
  for (Channel* channel : communicator_.channels) {
    if (channel != nullptr) channel->drop(communicator_.scope);
  }
  if (local_ != nullptr) local_->lane().give_up();
}

void StagedOperation::cancel() {
  if (!done_ && failure_.is_ok()) fail(aborted("the operation was cancelled"));
}

template <typename RankOf>
Communicator StagedOperation::across(const RankOf& rank_of) {
  channels_.clear();
  for (int h = 0; h < map().hosts(); ++h) {
    channels_.push_back(communicator_.channels[static_cast<std::size_t>(rank_of(h))]);
  }
  return {.rank = host(),
          .size = map().hosts(),
          .channels = channels_,
          .order = nullptr,
          .sequence = communicator_.sequence,
          .scope = communicator_.scope};
}

void HostsBroadcast::start(const Communicator& communicator, const HostsView& view,
                           WindowOperations& local, int root, const void* input, void* output,
                           std::size_t bytes) {
  begin(communicator, view, local);
  root_ = root;
  input_ = input;
  output_ = output;
  bytes_ = bytes;
}

Operation* HostsBroadcast::next(int stage) {
  const auto delegate = [&](int h) { return map().owner(h, map().local(root_)); };
  const int mine = delegate(host());
  if (stage == 0 && communicator().rank == mine) {
    broadcast_.start(across(delegate), map().host(root_), input_, output_, bytes_);
    return &broadcast_;
  }
  if (stage > 1 || (stage == 1 && communicator().rank != mine)) return nullptr;
  return &local().start_broadcast(map().local(mine), output_, output_, bytes_);
}

Operation* HostsBarrier::next(int stage) {
  const auto first = [&](int h) { return map().ranks(h).front(); };
  const bool crosses = communicator().rank == first(host());
  if (stage == 1 && crosses) {
    barrier_.start(across(first));
    return &barrier_;
  }
  return stage < (crosses ? 3 : 2) ? &local().start_barrier() : nullptr;
}

void HostsAllgather::start(const Communicator& communicator, const HostsView& view,
                           WindowOperations& local, const void* input, void* output,
                           std::span<const std::size_t> bytes) {
  begin(communicator, view, local);
  KOLO_CHECK(bytes.size() == static_cast<std::size_t>(map().size()));
  input_ = input;
  output_ = static_cast<std::byte*>(output);
  lay_out(bytes, blocks_);
  ours_.clear();
  runs_.clear();
  for (int rank : map().ranks(host())) ours_.push_back(blocks_[static_cast<std::size_t>(rank)]);
  for (int h = 0; h < map().hosts(); ++h) {
    if (h == host()) continue;
    const int keeper = map().local(map().owner(host(), h));
    const std::size_t before = runs_.size();
    for (int rank : map().ranks(h)) {
      const Block& block = blocks_[static_cast<std::size_t>(rank)];
      if (runs_.size() == before || runs_.back().block.end() != block.offset) {
        runs_.push_back({.block = {block.offset, 0}, .keeper = keeper});
      }
      runs_.back().block.bytes += block.bytes;
    }
  }
}

Operation* HostsAllgather::next(int stage) {
  if (stage == 0) return &local().start_allgather(input_, output_, ours_);
  if (stage == 1) {
    exchange();
    return &exchange_;
  }
  const auto next = static_cast<std::size_t>(stage - 2);
  if (next >= runs_.size()) return nullptr;
  const Run& run = runs_[next];
  std::byte* part = output_ + run.block.offset;
  return &local().start_broadcast(run.keeper, part, part, run.block.bytes);
}

void HostsAllgather::exchange() {
  const int rank = communicator().rank;
  const auto ours = map().ranks(host());
  const auto block = [&](int of_rank) { return blocks_[static_cast<std::size_t>(of_rank)]; };
  exchange_.start(communicator(), 2 * blocks_.size() * ours.size());
  for (int h = 0; h < map().hosts(); ++h) {
    if (h == host() || map().owner(host(), h) != rank) continue;
    const int peer = map().owner(h, host());
    for (int theirs : map().ranks(h)) {
      exchange_.receive(peer, static_cast<std::size_t>(theirs), output_ + block(theirs).offset,
                        block(theirs).bytes);
    }
    for (int own : ours) {
      exchange_.send(peer, static_cast<std::size_t>(own), output_ + block(own).offset,
                     block(own).bytes);
    }
  }
}

void Exchange::start(const Communicator& communicator, std::size_t most_messages) {
  begin(communicator);
  transfers_.assign(most_messages, Transfer{.done = true});
  used_ = 0;
}

Transfer& Exchange::next() {
  KOLO_CHECK(used_ < transfers_.size());
  return transfers_[used_++];
}

bool Exchange::step() {
  if (std::all_of(transfers_.begin(), transfers_.end(), [](auto& t) { return t.done; })) complete();
  return false;
}

void HostsAlltoall::start(const Communicator& communicator, const HostsView& view,
                          WindowOperations& local, const void* input, void* output,
                          std::span<const std::size_t> send_bytes,
                          std::span<const std::size_t> receive_bytes) {
  begin(communicator, view, local);
  const auto ranks = static_cast<std::size_t>(map().size());
  KOLO_CHECK(send_bytes.size() == ranks && receive_bytes.size() == ranks);
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  lay_out(send_bytes, to_);
  lay_out(receive_bytes, from_);
  to_ours_.clear();
  from_ours_.clear();
  for (int peer : map().ranks(host())) {
    to_ours_.push_back(to_[static_cast<std::size_t>(peer)]);
    from_ours_.push_back(from_[static_cast<std::size_t>(peer)]);
  }
}

Operation* HostsAlltoall::next(int stage) {
  if (stage > 0) return nullptr;
  const int rank = communicator().rank;
  const int size = communicator().size;
  exchange_.start(communicator(), 2 * to_.size());
  for (int i = 1; i < size; ++i) {
    // Each rank begins with another peer, so that nobody is met by all at once.
    const int source = (rank + size - i) % size;
    if (map().host(source) == host()) continue;
    const Block& block = from_[static_cast<std::size_t>(source)];
    exchange_.receive(source, 0, output_ + block.offset, block.bytes);
  }
  for (int i = 1; i < size; ++i) {
    const int target = (rank + i) % size;
    if (map().host(target) == host()) continue;
    const Block& block = to_[static_cast<std::size_t>(target)];
    exchange_.send(target, 0, input_ + block.offset, block.bytes);
  }
  both_.start(local().start_alltoall(input_, output_, to_ours_, from_ours_), exchange_);
  return &both_;
}

void HostsAlltoall::SideBySide::start(Operation& a, Operation& b) {
  a_ = &a;
  b_ = &b;
}

Result<Progress> HostsAlltoall::SideBySide::advance() {
  const Result<Progress> a = a_->advance();
  if (!a) return a;
  const Result<Progress> b = b_->advance();
  if (!b || *b == *a) return b;
  return *a == Progress::kMoved || *b == Progress::kMoved ? Progress::kMoved : Progress::kBlocked;
}

void HostsAlltoall::SideBySide::cancel() {
  a_->cancel();
  b_->cancel();
}

}  // namespace kolo::internal
