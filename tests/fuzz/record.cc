// Writes the corpus of the targets that read what kolo's processes say to each other; record.sh
// runs it.
//
//   fuzz_record CORPUS TO_AGENT FROM_AGENT
//
// TO_AGENT and FROM_AGENT are what went into and came out of one agent of a real job: they are the
// corpus of fuzz_agent, and the joins and answers in them that of fuzz_rendezvous. The frames of
// fuzz_negotiator, and of fuzz_frame_codec the longest of them, come from coordinators that are
// joined by queues here, since on their way between processes they are sealed.
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/negotiator.h"
#include "launcher/frame_reader.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {
namespace {

constexpr int kRanks = 5;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Corpus {
 public:
  explicit Corpus(std::string folder) : folder_(std::move(folder)) {}
  // `choice` is the byte that tells the target what to do with `bytes`.
  void put(const std::string& name, char choice, const std::string& bytes) const {
    put(name, choice + bytes);
  }
  void put(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }

 private:
  std::string folder_;
};

// As targets read a message among others: a choice, two bytes of length, the message.
std::string record(int choice, const std::string& bytes) {
  return std::string{static_cast<char>(choice), static_cast<char>(bytes.size() >> 8),
                     static_cast<char>(bytes.size() & 255)} +
         bytes;
}

std::vector<std::string> frames_of(const std::string& stream, std::string_view greeting) {
  FrameReader reader(greeting);
  reader.feed(stream);
  std::vector<std::string> frames;
  for (auto frame = reader.next(); frame && frame->has_value(); frame = reader.next()) {
    frames.push_back(**std::move(frame));
  }
  return frames;
}

void record_agent(const Corpus& corpus, const std::string& to, const std::string& from) {
  corpus.put("fuzz_agent/to_agent", '\x41', to);
  corpus.put("fuzz_agent/from_agent", '\x40', from);
  std::string meeting;
  for (const std::string& frame : frames_of(from, kAgentGreeting)) {
    const auto message = decode_from_agent(frame);
    if (!message || !std::holds_alternative<RelayJoin>(*message)) continue;
    const std::string& join = std::get<RelayJoin>(*message).join;
    corpus.put("fuzz_rendezvous/join", '\0', join);
    meeting += record(0, join);
  }
  corpus.put("fuzz_rendezvous/meeting", '\2', meeting);
  for (const std::string& frame : frames_of(to, "")) {
    const auto message = decode_to_agent(frame);
    if (!message || !std::holds_alternative<DeliverAnswer>(*message)) continue;
    corpus.put("fuzz_rendezvous/answer", '\1', std::get<DeliverAnswer>(*message).answer);
  }
}

// Coordinators of five ranks on three hosts; whatever reaches one of them is kept.
class Job {
 public:
  Job() {
    topology_.add_process_set(1, {0, 1});
    topology_.add_process_set(2, {1, 2, 3});
    topology_.add_process_set(3, {2, 3});
    for (int rank = 0; rank < kRanks; ++rank) {
      SequencerOptions options;
      options.cache_capacity = 2;
      negotiators_.push_back(std::make_unique<Negotiator>(topology_, rank, 1, options));
    }
  }

  Negotiator& at(int rank) { return *negotiators_[static_cast<std::size_t>(rank)]; }
  Topology& topology() { return topology_; }

  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < kRanks; ++rank) {
        for (Action& action : at(rank).drain(now_)) {
          const auto* sent = std::get_if<SendFrame>(&action);
          if (sent == nullptr) continue;
          moved = true;
          const int choice = (rank - sent->rank - 1 + 2 * kRanks) % kRanks;  // who it is from
          const auto to = static_cast<std::size_t>(sent->rank);
          heard_[to] += record(choice, sent->bytes);
          if (sent->bytes.size() > longest_[to].size()) longest_[to] = sent->bytes;
          static_cast<void>(at(sent->rank).receive(rank, sent->bytes, now_).is_ok());
        }
      }
    }
  }

  // On all ranks of the set; `other_shape_on` differs.
  void all_submit(OpKind kind, const std::string& name, std::vector<std::int64_t> shape,
                  std::uint32_t set = 0, int other_shape_on = -1, Nanos deadline = kNever) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!topology_.in_set(set, rank)) continue;
      submit(rank, kind, name, rank == other_shape_on ? std::vector<std::int64_t>{2, 2} : shape,
             set, deadline);
    }
    settle();
  }

  // From now on: the tensors of ranks from `first_on_host` on lie in host memory, those of the
  // others on the device with the number of their rank.
  void use_devices(int first_on_host) { first_on_host_ = first_on_host; }

  void submit(int rank, OpKind kind, const std::string& name, std::vector<std::int64_t> shape,
              std::uint32_t set = 0, Nanos deadline = kNever) {
    auto unit = std::make_shared<Unit>();
    unit->key = {set, name};
    TensorSpec spec;
    spec.name = name;
    spec.kind = kind;
    spec.count = 4;
    spec.shape = std::move(shape);
    spec.open = kind == OpKind::kAllgather;
    if (rank < first_on_host_) spec.device = rank;
    if (spec.open) {  // every rank brings another number
      spec.count = static_cast<std::uint64_t>(rank);
      spec.shape = {rank};
    }
    if (kind == OpKind::kAlltoall) {
      spec.counts = {1, 2, 3, 4, static_cast<std::uint64_t>(rank)};
      spec.count = 10 + static_cast<std::uint64_t>(rank);
      spec.shape = {10 + rank};
    }
    unit->tensors = {spec};
    static_cast<void>(at(rank).submit(++tickets_, unit, deadline).is_ok());
  }

  void pass(Nanos time) {
    now_ += time;
    for (const auto& negotiator : negotiators_) negotiator->tick(now_);
    settle();
  }

  void keep(const Corpus& corpus, const std::string& scene) const {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const std::string name = scene + std::to_string(rank);
      corpus.put("fuzz_negotiator/" + name, static_cast<char>(rank), heard_[rank]);
      corpus.put("fuzz_frame_codec/" + name, longest_[rank]);
    }
  }

 private:
  Topology topology_{{0, 0, 1, 1, 2}};
  std::vector<std::unique_ptr<Negotiator>> negotiators_;
  std::vector<std::string> heard_ = std::vector<std::string>(kRanks);
  std::vector<std::string> longest_ = std::vector<std::string>(kRanks);
  int first_on_host_ = 0;
  Ticket tickets_ = 0;
  Nanos now_{0};
};

void record_control(const Corpus& corpus) {
  for (const bool differ : {false, true}) {  // first sight, then known; or differences
    Job job;
    for (int round = 0; round < 2; ++round) {
      for (const char* name : {"a", "b"}) {
        for (const std::uint32_t set : {0u, 1u, 2u, 3u}) {
          job.all_submit(OpKind::kAllreduce, name, {4}, set, differ ? 2 : -1);
        }
      }
    }
    job.keep(corpus, differ ? "differ" : "known");
  }
  Job joins;  // late, joined, and ragged with a joined rank
  for (int rank = 0; rank < 4; ++rank) joins.submit(rank, OpKind::kAllreduce, "late", {4}, 0, 1ms);
  joins.settle();
  joins.pass(2ms);
  joins.all_submit(OpKind::kAllgather, "c", {4});
  joins.all_submit(OpKind::kAlltoall, "d", {4});
  static_cast<void>(joins.at(4).join(0));
  joins.settle();
  joins.all_submit(OpKind::kAllgather, "c", {4});
  for (int rank = 0; rank < 4; ++rank) static_cast<void>(joins.at(rank).join(0));
  joins.settle();
  joins.keep(corpus, "joins");
  Job sets;
  sets.all_submit(OpKind::kCreateSet, "#pset:a", {0, 1, 2});
  sets.topology().add_process_set(4, {0, 1, 2});
  for (int round = 0; round < 2; ++round) sets.all_submit(OpKind::kAllreduce, "a", {4}, 4);
  sets.all_submit(OpKind::kDestroySet, "#destroy:4", {4});
  sets.keep(corpus, "sets");
  Job devices;  // of all ranks, then of some; "g" is known, and moves
  for (const int first_on_host : {kRanks, kRanks, 2, 0}) {
    devices.use_devices(first_on_host);
    devices.all_submit(OpKind::kAllreduce, "g", {4});
    devices.all_submit(OpKind::kAllgather, "c", {4});
    devices.all_submit(OpKind::kAllreduce, "a", {4}, 2);
  }
  devices.keep(corpus, "devices");
  Job ends;
  ends.at(4).goodbye();
  ends.settle();
  ends.at(3).peer_lost(2, "is lost");
  ends.settle();
  ends.at(1).abort("over");
  ends.settle();
  ends.keep(corpus, "ends");
}

}  // namespace
}  // namespace kolo::internal

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: fuzz_record CORPUS TO_AGENT FROM_AGENT\n");
    return 2;
  }
  using namespace kolo::internal;
  const Corpus corpus(argv[1]);
  record_agent(corpus, read_file(argv[2]), read_file(argv[3]));
  record_control(corpus);
  return 0;
}
