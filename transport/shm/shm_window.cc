#include "transport/shm/shm_window.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/shm/segment.h"
#include "transport/shm/shm_meeting.h"
#include "transport/shm/vitals.h"

namespace kolo::internal {
namespace {

// What a window stands on, in the order of dependence.
struct Parts {
  Segment own;
  std::vector<Mapping> peers;   // by rank, without this one's
  std::vector<UniqueFd> bells;  // by rank; closed: never struck from here
  std::vector<const std::byte*> segments;
};

// FUTEX_WAITV_MAX less the thread's own word.
constexpr int kMaxWatched = 127;
constexpr std::size_t kPage = 4096;

class ShmWindow final : public Window {
 public:
  static Result<std::unique_ptr<Window>> create(int rank, std::size_t bytes, Parts parts) {
    std::unique_ptr<ShmWindow> made(new ShmWindow(rank, bytes, std::move(parts)));
    KOLO_RETURN_IF_ERROR(made->start_vitals());
    return std::unique_ptr<Window>(std::move(made));
  }

  Status commit(std::size_t offset, std::size_t bytes) override {
    return commit_memory(parts_.own.memory.get(), offset, bytes);
  }
  int bell() const override { return parts_.bells[static_cast<std::size_t>(rank())].get(); }
  int lost() const override { return vitals_->lost(); }
  bool is_lost(int peer) const override { return vitals_->is_lost(peer); }

 private:
  ShmWindow(int rank, std::size_t bytes, Parts parts)
      : Window(rank, bytes, parts.own.mapping.begin(), parts.segments), parts_(std::move(parts)) {}

  Status start_vitals() {
    std::vector<const std::atomic<std::uint32_t>*> watched;
    for (int peer = 0; peer < size(); ++peer) {
      const auto& header = *reinterpret_cast<const SegmentHeader*>(of(peer));
      watched.push_back(&header.vitals[static_cast<std::size_t>(rank())].word);
    }
    const std::span<VitalNode> own(parts_.own.mapping.header().vitals);
    Result<std::unique_ptr<Vitals>> vitals =
        Vitals::start(rank(), own.first(static_cast<std::size_t>(size())), std::move(watched),
                      [this] { on_death(); });
    if (!vitals) return vitals.status();
    vitals_ = std::move(*vitals);
    return Status::ok();
  }

  // Those who cannot watch everybody must hear it from others, where bells are there for it.
  void on_death() {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || size() - 1 > kMaxWatched) strike(peer);
    }
  }

  void strike(int peer) {
    const UniqueFd& bell = parts_.bells[static_cast<std::size_t>(peer)];
    if (!bell.is_open()) return;
    const std::uint64_t one = 1;
    // It can only fail when the counter is full, and then the event is set anyway.
    [[maybe_unused]] const auto written = ::write(bell.get(), &one, sizeof one);
  }

  void wake(int peer) override {
    strike(peer);
    counters_.rings.fetch_add(1, std::memory_order_relaxed);
  }

  Parts parts_;
  std::unique_ptr<Vitals> vitals_;  // the last: its thread uses the rest
};

Result<UniqueFd> make_bell(int rank) {
  UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.is_open()) {
    return resource_error("local rank " + std::to_string(rank) +
                          " has no descriptor for its bell: " + std::strerror(errno) +
                          "; raise the limit of open files (ulimit -n)");
  }
  return bell;
}

Result<Share> share_of(const Result<Segment>& own, const Result<UniqueFd>& bell) {
  if (!own) return own.status();
  if (!bell) return bell.status();
  Share share{UniqueFd(::fcntl(own->memory.get(), F_DUPFD_CLOEXEC, 0)),
              UniqueFd(::fcntl(bell->get(), F_DUPFD_CLOEXEC, 0)), own->mapping.header().nonce};
  if (!share.memory.is_open() || !share.bell.is_open()) {
    return resource_error(
        "no descriptors left for sharing memory; raise the limit of open files "
        "(ulimit -n)");
  }
  return share;
}

enum class Bells { kAll, kOwn };  // that this rank keeps

// Maps what the others have shown.
Result<std::unique_ptr<Window>> assemble(const ShmOptions& options, Bells kept, Segment own,
                                         UniqueFd bell, std::vector<Share> shares) {
  Parts parts{std::move(own), {}, {}, {}};
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) {
      parts.segments.push_back(parts.own.mapping.begin());
      parts.bells.push_back(std::move(bell));
      continue;
    }
    Share& share = shares[static_cast<std::size_t>(rank)];
    if (!share.memory.is_open() || !share.bell.is_open()) {
      return resource_error("local rank " + std::to_string(options.rank) +
                            " has no descriptors left for its peers' memory; raise the limit of "
                            "open files (ulimit -n)");
    }
    Result<Mapping> mapping = map_peer(share.memory.get(), rank, options.bytes, share.nonce);
    if (!mapping) {
      return Status(mapping.status().code(), "on local rank " + std::to_string(options.rank) +
                                                 ": " + mapping.status().text());
    }
    parts.segments.push_back(mapping->begin());
    parts.peers.push_back(std::move(*mapping));
    if (kept == Bells::kOwn) share.bell.reset();
    parts.bells.push_back(std::move(share.bell));
    share.memory.reset();  // the mapping keeps it
  }
  return ShmWindow::create(options.rank, options.bytes, std::move(parts));
}

Result<std::unique_ptr<Window>> meet_until_an_end(const ShmOptions& given, Bells kept) {
  ShmOptions options = given;
  options.bytes = (given.bytes + kPage - 1) / kPage * kPage;
  options.limit = std::min<Nanos>(given.limit, 24h);  // kNever cannot be added to a time
  options.quiet = std::min<Nanos>(given.quiet, 24h);
  if (options.size < 1 || options.size > kMaxLocalRanks || options.rank < 0 ||
      options.rank >= options.size || options.bytes < Window::kHeaderBytes + kPage) {
    return invalid_argument("local rank " + std::to_string(options.rank) + " of " +
                            std::to_string(options.size) + " cannot share " +
                            std::to_string(given.bytes) + " bytes: at most " +
                            std::to_string(kMaxLocalRanks) + " ranks of a host share memory");
  }
  Result<std::unique_ptr<ShmMeeting>> meeting = ShmMeeting::open(options);
  if (!meeting) return meeting.status();
  Result<Segment> own = Segment::create(options.rank, options.bytes);
  Result<UniqueFd> bell = make_bell(options.rank);
  Result<std::vector<Share>> shares = (*meeting)->exchange(share_of(own, bell));
  if (!shares) return shares.status();
  Result<std::unique_ptr<Window>> window =
      assemble(options, kept, std::move(*own), std::move(*bell), std::move(*shares));
  KOLO_RETURN_IF_ERROR((*meeting)->agree(window.status()));
  return window;
}

// Whatever else a meeting has come to that a rank's end has spoilt.
Result<std::unique_ptr<Window>> meet(const ShmOptions& options, Bells kept) {
  auto window = meet_until_an_end(options, kept);
  if (window || options.watch == nullptr) return window;
  KOLO_RETURN_IF_ERROR(options.watch->lost());
  return cause_of(window.status(), options.watch);
}

}  // namespace

Result<std::unique_ptr<Window>> meet_shm(const ShmOptions& options) {
  return meet(options, Bells::kAll);
}

// Nobody rings, so nobody holds another one's bell.
Result<std::unique_ptr<Witness>> meet_to_watch(const ShmOptions& given) {
  ShmOptions options = given;
  options.bytes = Window::kHeaderBytes + kPage;
  Result<std::unique_ptr<Window>> window = meet(options, Bells::kOwn);
  if (!window) return window.status();
  return std::unique_ptr<Witness>(*std::move(window));
}

}  // namespace kolo::internal
