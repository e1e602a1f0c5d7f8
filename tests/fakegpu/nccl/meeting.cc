#include "tests/fakegpu/nccl/meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <map>
#include <mutex>

namespace fakegpu {
namespace {

constexpr std::size_t kKeyBytes = 16;

// What a unique id holds.
struct Place {
  char magic[8] = {'f', 'a', 'k', 'e', 'g', 'p', 'u', '1'};
  int process = 0;
  int file = -1;
  char key[kKeyBytes] = {};
};
static_assert(sizeof(Place) <= nccl::kUniqueIdBytes);

// The files of ids made here, until all ranks have come; of ids never used, until the process ends.
struct OpenFiles {
  std::mutex mutex;
  std::map<std::string, int> by_key;
};
OpenFiles& open_files() {
  static auto* const files = std::make_unique<OpenFiles>().release();
  return *files;
}

void forget_file(const Place& place) {
  OpenFiles& files = open_files();
  const std::lock_guard lock(files.mutex);
  const auto found = files.by_key.find(std::string(place.key, kKeyBytes));
  if (found == files.by_key.end()) return;
  close(found->second);
  files.by_key.erase(found);
}

}  // namespace

struct Meeting::RankWords {
  std::atomic<std::uint32_t> is_here;
  std::atomic<std::uint32_t> steps;
  std::atomic<std::uint32_t> is_finished;
  char bus_id[32];
  char host[96];
  OperationShape shape;
};

struct Meeting::Header {
  char key[kKeyBytes];
  std::atomic<std::int32_t> size;
  std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> shrinks[kMaxShrinks];
  nccl::UniqueId shrink_ids[kMaxShrinks];
  RankWords ranks[kMaxRanks];
};

struct Meeting::Box {
  std::atomic<std::uint64_t> put;
  std::atomic<std::uint64_t> taken;
  std::uint64_t bytes;
  std::uint64_t whole_bytes;
  std::byte data[kBoxBytes];
};

bool Meeting::make_id(nccl::UniqueId* id) {
  Place place;
  if (getrandom(place.key, kKeyBytes, 0) != static_cast<ssize_t>(kKeyBytes)) return false;
  place.process = getpid();
  place.file = memfd_create("fakegpu meeting", MFD_CLOEXEC);
  if (place.file < 0) return false;
  // Room for any number of ranks: what nobody touches takes no memory.
  if (ftruncate(place.file, static_cast<off_t>(bytes_for(kMaxRanks))) != 0 ||
      pwrite(place.file, place.key, kKeyBytes, 0) != static_cast<ssize_t>(kKeyBytes)) {
    close(place.file);
    return false;
  }
  {
    OpenFiles& files = open_files();
    const std::lock_guard lock(files.mutex);
    files.by_key.emplace(std::string(place.key, kKeyBytes), place.file);
  }
  *id = nccl::UniqueId();
  std::memcpy(id->bytes, &place, sizeof place);
  return true;
}

std::unique_ptr<Meeting> Meeting::join(const nccl::UniqueId& id, int size, int rank,
                                       const Identity& me, const Stop& stop, int* error,
                                       std::string* why) {
  Place place;
  std::memcpy(&place, id.bytes, sizeof place);
  if (std::memcmp(place.magic, Place().magic, sizeof place.magic) != 0) {
    *error = nccl::kInvalidArgument;
    *why = "the unique id is none";
    return nullptr;
  }
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  char key[kKeyBytes] = {};
  if (file < 0 || pread(file, key, kKeyBytes, 0) != static_cast<ssize_t>(kKeyBytes) ||
      std::memcmp(key, place.key, kKeyBytes) != 0) {
    if (file >= 0) close(file);
    *error = nccl::kRemoteError;
    *why = "the process that made the unique id is gone, or all ranks of this id have come";
    return nullptr;
  }
  std::unique_ptr<Meeting> meeting(new Meeting(file, size, rank));
  if (!meeting->map()) {
    *error = nccl::kSystemError;
    *why = "no shared memory";
    return nullptr;
  }
  if (!meeting->arrive(me, stop, error, why)) return nullptr;
  forget_file(place);
  return meeting;
}

std::size_t Meeting::bytes_for(int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  return sizeof(Header) + size * kSlotBytes + size * size * sizeof(Box);
}

bool Meeting::map() {
  void* address = mmap(nullptr, bytes_for(size_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (address == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(address);
  header_ = reinterpret_cast<Header*>(base_);
  return true;
}

Meeting::~Meeting() {
  if (base_ != nullptr) munmap(base_, bytes_for(size_));
  close(file_);  // and with it goes the lock that says that this rank lives
}

bool Meeting::arrive(const Identity& me, const Stop& stop, int* error, std::string* why) {
  std::int32_t none = 0;
  *error = nccl::kInvalidArgument;
  if (!header_->size.compare_exchange_strong(none, size_) && none != size_) {
    *why = "ranks disagree on the size of the communicator: " + std::to_string(none) + " and " +
           std::to_string(size_);
    return false;
  }
  struct flock alive = {};
  alive.l_type = F_WRLCK;
  alive.l_whence = SEEK_SET;
  alive.l_start = rank_;
  alive.l_len = 1;
  RankWords& mine = words(rank_);
  if (fcntl(file_, F_OFD_SETLK, &alive) != 0 || mine.is_here != 0) {
    *why = "rank " + std::to_string(rank_) + " is in this communicator already";
    return false;
  }
  std::strncpy(mine.bus_id, me.bus_id.c_str(), sizeof mine.bus_id - 1);
  std::strncpy(mine.host, me.host.c_str(), sizeof mine.host - 1);
  mine.is_here = 1;
  ring();
  const auto all_are_here = [this] {
    for (int other = 0; other < size_; ++other) {
      if (words(other).is_here == 0) return false;
    }
    return true;
  };
  *error = nccl::kInternalError;
  *why = "stopped before all ranks had come";
  if (!wait_until(all_are_here, stop)) return false;
  if (me.may_share) return true;
  for (int a = 0; a < size_; ++a) {
    for (int b = a + 1; b < size_; ++b) {
      if (std::strcmp(words(a).bus_id, words(b).bus_id) == 0 &&
          std::strcmp(words(a).host, words(b).host) == 0) {
        *error = nccl::kInvalidUsage;
        *why = "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " +
               std::to_string(b) + " both on CUDA device " + words(a).bus_id;
        return false;
      }
    }
  }
  return true;
}

void Meeting::ring() {
  header_->bell.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header_->bell), FUTEX_WAKE, INT32_MAX,
          nullptr, nullptr, 0);
}

bool Meeting::wait_until(const std::function<bool()>& ready, const Stop& stop) {
  constexpr int kYields = 20;
  for (int turn = 0;; ++turn) {
    const std::uint32_t rung = header_->bell.load();
    if (ready()) return true;
    if (stop()) return false;
    if (turn < kYields) {
      sched_yield();
      continue;
    }
    const timespec limit = {0, 2'000'000};  // stop() is asked again
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header_->bell), FUTEX_WAIT, rung, &limit,
            nullptr, 0);
  }
}

bool Meeting::step(const Stop& stop) {
  const std::uint32_t mine = ++steps_;
  words(rank_).steps = mine;
  ring();
  return wait_until(
      [this, mine] {
        for (int other = 0; other < size_; ++other) {
          if (words(other).steps < mine) return false;
        }
        return true;
      },
      stop);
}

bool Meeting::finish(const Stop& stop) {
  words(rank_).is_finished = 1;
  ring();
  return wait_until(
      [this] {
        for (int other = 0; other < size_; ++other) {
          if (words(other).is_finished == 0) return false;
        }
        return true;
      },
      stop);
}

Meeting::RankWords& Meeting::words(int rank) const { return header_->ranks[rank]; }

OperationShape& Meeting::shape(int rank) { return words(rank).shape; }

std::byte* Meeting::slot(int rank) {
  return base_ + sizeof(Header) + static_cast<std::size_t>(rank) * kSlotBytes;
}

Meeting::Box& Meeting::box(int from, int to) const {
  auto* boxes =
      reinterpret_cast<Box*>(base_ + sizeof(Header) + static_cast<std::size_t>(size_) * kSlotBytes);
  return boxes[from * size_ + to];
}

bool Meeting::box_is_free(int to) const {
  const Box& out = box(rank_, to);
  return out.put.load() == out.taken.load();
}

void Meeting::put(int to, const std::byte* data, std::size_t bytes, std::uint64_t whole_bytes) {
  Box& out = box(rank_, to);
  std::memcpy(out.data, data, bytes);
  out.bytes = bytes;
  out.whole_bytes = whole_bytes;
  out.put.fetch_add(1);
  ring();
}

const std::byte* Meeting::look(int from, std::size_t* bytes, std::uint64_t* whole_bytes) const {
  Box& in = box(from, rank_);
  if (in.put.load() == in.taken.load()) return nullptr;
  *bytes = in.bytes;
  *whole_bytes = in.whole_bytes;
  return in.data;
}

void Meeting::taken(int from) {
  box(from, rank_).taken.fetch_add(1);
  ring();
}

int Meeting::find_dead() const {
  for (int other = 0; other < size_; ++other) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = other;
    lock.l_len = 1;
    if (other != rank_ && words(other).is_here != 0 && fcntl(file_, F_OFD_GETLK, &lock) == 0 &&
        lock.l_type == F_UNLCK) {
      return other;
    }
  }
  return -1;
}

void Meeting::publish_shrink(int number, const nccl::UniqueId& id) {
  header_->shrink_ids[number] = id;
  header_->shrinks[number] = 1;
  ring();
}

bool Meeting::wait_for_shrink(int number, nccl::UniqueId* id, const Stop& stop) {
  if (!wait_until([this, number] { return header_->shrinks[number] != 0; }, stop)) return false;
  *id = header_->shrink_ids[number];
  return true;
}

}  // namespace fakegpu
