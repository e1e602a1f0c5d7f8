#include "tests/chaos/plan.h"

#include <numeric>

#include "tests/sim/random.h"

namespace kolo::chaos {
namespace {

using internal::Rng;

constexpr const char* kRoads[] = {"shm", "tcp", "hosts"};
constexpr const char* kFaults[] = {"none", "kill",  "freeze", "pause", "slow",  "link", "drop",
                                   "fail", "limit", "disk",   "clock", "lossy", "die"};
constexpr const char* kMoments[] = {"init", "idle", "negotiate", "transfer", "shutdown"};

template <typename T, std::size_t kCount>
std::optional<T> find_word(const char* const (&words)[kCount], std::string_view word) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (word == words[i]) return static_cast<T>(i);
  }
  return std::nullopt;
}

bool needs_wires(Fault fault) {
  return fault == Fault::kLink || fault == Fault::kDrop || fault == Fault::kLossy;
}

Fault draw_fault(Rng& random, Road road) {
  std::vector<Fault> all;
  for (int i = static_cast<int>(Fault::kKill); i <= static_cast<int>(Fault::kLossy); ++i) {
    const auto fault = static_cast<Fault>(i);
    if (road == Road::kHosts ? fault != Fault::kDisk : !needs_wires(fault)) all.push_back(fault);
  }
  return random.pick(all);
}

Moment draw_moment(Rng& random, Fault fault) {
  const std::vector<Moment> running = {Moment::kIdle, Moment::kNegotiate, Moment::kTransfer};
  switch (fault) {
    case Fault::kKill:
      return random.pick<Moment>({Moment::kInit, Moment::kIdle, Moment::kNegotiate,
                                  Moment::kTransfer, Moment::kTransfer, Moment::kShutdown});
    case Fault::kFreeze:
    case Fault::kLink:
    case Fault::kDrop: return random.pick(running);
    case Fault::kDie: return Moment::kInit;
    default: return Moment::kTransfer;
  }
}

// Uniform over what the moment lasts, about.
std::int64_t draw_delay_us(Rng& random, Moment moment) {
  constexpr std::uint64_t kSpansUs[] = {60'000, 30'000, 20'000, 150'000, 1'500};
  return static_cast<std::int64_t>(random.below(kSpansUs[static_cast<int>(moment)]));
}

}  // namespace

int Plan::size() const { return std::accumulate(ranks_on.begin(), ranks_on.end(), 0); }

int Plan::host_of(int rank) const {
  int host = 0;
  for (int before = 0; rank >= before + ranks_on[static_cast<std::size_t>(host)]; ++host) {
    before += ranks_on[static_cast<std::size_t>(host)];
  }
  return host;
}

bool Plan::harmless() const {
  switch (fault) {
    case Fault::kNone:
    case Fault::kPause:
    case Fault::kSlow:
    case Fault::kDisk:
    case Fault::kClock:
    case Fault::kLossy: return true;
    default: return false;
  }
}

const std::vector<std::string>& calls() {
  static const std::vector<std::string> names = {
      "open",         "socket", "accept4",        "eventfd", "epoll_create1", "mmap",     "dup",
      "memfd_create", "bind",   "pthread_create", "fcntl",   "fopen",         "epoll_ctl"};
  return names;
}

const std::vector<std::string>& deadly_calls() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = calls();
    all.insert(all.end(), {"connect", "listen", "send", "sendmsg", "recvmsg"});
    return all;
  }();
  return names;
}

Plan draw_plan(std::uint64_t seed, Road road, std::optional<Fault> fault,
               std::int64_t peer_timeout_ms) {
  Rng random(seed);
  Plan plan;
  plan.seed = seed;
  plan.road = road;
  plan.hosts = road == Road::kHosts ? 2 : 1;
  for (int host = 0; host < plan.hosts; ++host) {
    plan.ranks_on[static_cast<std::size_t>(host)] = 4 / plan.hosts;
  }
  plan.fault = fault ? *fault : draw_fault(random, road);
  plan.moment = draw_moment(random, plan.fault);
  plan.by_kolorun = random.chance(70) || plan.fault == Fault::kDisk;
  plan.victim = random.below(plan.size());
  plan.delay_us = draw_delay_us(random, plan.moment);
  plan.peer_timeout_ms = random.pick<std::int64_t>({500, 1000, 1000, 2000});
  if (peer_timeout_ms > 0) plan.peer_timeout_ms = peer_timeout_ms;
  plan.largest_bytes = 65536LL << random.pick<int>({0, 2, 4, 4, 8});
  if (plan.fault == Fault::kFreeze) {
    plan.stop_ms = plan.peer_timeout_ms + 700;
    plan.leaves_early = random.chance(50);
  }
  if (plan.fault == Fault::kPause) {
    plan.stop_ms = static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(plan.peer_timeout_ms / 2)));
  }
  if (plan.fault == Fault::kFail) {
    plan.call = random.below(static_cast<int>(calls().size()));
    plan.nth = 1 + random.below(12);
  }
  if (plan.fault == Fault::kDie) {
    plan.call = random.below(static_cast<int>(deadly_calls().size()));
    plan.nth = 1 + random.below(12);
  }
  if (plan.fault == Fault::kLimit) {
    plan.address_space = random.chance(40);
    plan.nth = plan.address_space ? 8 << random.below(7) : random.below(40);
  }
  if (plan.fault == Fault::kLossy) {
    plan.loss_percent = random.pick<std::int32_t>({1, 5});
    plan.stop_ms = 1500;
    if (peer_timeout_ms == 0) plan.peer_timeout_ms = 3000;  // what is sent again takes some 100 ms
  }
  return plan;
}

std::optional<Road> road_of(std::string_view word) { return find_word<Road>(kRoads, word); }
std::optional<Fault> fault_of(std::string_view word) { return find_word<Fault>(kFaults, word); }
const char* word_of(Road road) { return kRoads[static_cast<int>(road)]; }
const char* word_of(Fault fault) { return kFaults[static_cast<int>(fault)]; }
const char* word_of(Moment moment) { return kMoments[static_cast<int>(moment)]; }

std::string text_of(const Plan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": " + word_of(plan.fault) +
                     " of rank " + std::to_string(plan.victim) + " over " + word_of(plan.road) +
                     ", " + std::to_string(plan.delay_us) + " us into " + word_of(plan.moment) +
                     (plan.by_kolorun ? ", by kolorun" : ", by itself") + ", up to " +
                     std::to_string(plan.largest_bytes >> 10) + " KiB, peer timeout " +
                     std::to_string(plan.peer_timeout_ms) + " ms";
  if (plan.stop_ms > 0) {
    const bool goes_on = plan.fault == Fault::kNone || plan.fault == Fault::kLossy;
    text += (goes_on ? ", for " : ", stopped for ") + std::to_string(plan.stop_ms) + " ms";
  }
  if (plan.fault == Fault::kLossy) {
    text += ", of packets lost: " + std::to_string(plan.loss_percent) + " %";
  }
  if (plan.fault == Fault::kFail) {
    text += ", " + calls()[static_cast<std::size_t>(plan.call)] + " number " +
            std::to_string(plan.nth) + " fails";
  }
  if (plan.fault == Fault::kDie) {
    text += ", at " + deadly_calls()[static_cast<std::size_t>(plan.call)] + " number " +
            std::to_string(plan.nth);
  }
  if (plan.fault == Fault::kLimit) {
    text += plan.address_space ? ", MiB to map: " : ", descriptors to open: ";
    text += std::to_string(plan.nth);
  }
  if (plan.ballast_bytes > 0) text += ", ballast " + std::to_string(plan.ballast_bytes >> 20);
  return text;
}

}  // namespace kolo::chaos
