#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kolo::internal {
namespace {

std::string errno_text() { return std::strerror(errno); }

Status no_segment(int rank, std::size_t bytes, const std::string& why) {
  return resource_error("local rank " + std::to_string(rank) + " cannot share memory of " +
                        std::to_string(bytes) + " bytes: " + why);
}

Status seal(int memory) {
  const int basic = F_SEAL_SHRINK | F_SEAL_GROW;
  // The second is for kernels before 5.1.
  if (::fcntl(memory, F_ADD_SEALS, basic | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 ||
      ::fcntl(memory, F_ADD_SEALS, basic | F_SEAL_SEAL) == 0) {
    return Status::ok();
  }
  return resource_error("cannot seal shared memory: " + errno_text());
}

Status set_size(int memory, int rank, std::size_t bytes) {
  // Going beyond this limit would not only fail, but also raise SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return no_segment(rank, bytes,
                      "files may have " + std::to_string(limit.rlim_cur) +
                          " bytes at most; raise ulimit -f or lower KOLO_SHM_BYTES");
  }
  if (::ftruncate(memory, static_cast<off_t>(bytes)) != 0) {
    return no_segment(rank, bytes, "ftruncate: " + errno_text() + "; lower KOLO_SHM_BYTES");
  }
  return Status::ok();
}

}  // namespace

// ---- Mapping

Mapping::Mapping(std::byte* begin, std::size_t bytes)
    : begin_(begin), bytes_(bytes), process_(::getpid()) {}

Mapping::Mapping(Mapping&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)),
      bytes_(other.bytes_),
      process_(other.process_) {}

Mapping::~Mapping() {
  if (begin_ != nullptr && process_ == ::getpid()) ::munmap(begin_, bytes_);
}

Result<Mapping> Mapping::map(int memory, std::size_t bytes, bool writable, int rank) {
  void* begin =
      ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, memory, 0);
  if (begin == MAP_FAILED) {
    return no_segment(
        rank, bytes,
        "no address space for it: " + errno_text() + "; raise ulimit -v or lower KOLO_SHM_BYTES");
  }
  Mapping made(static_cast<std::byte*>(begin), bytes);
  ::madvise(begin, bytes, MADV_DONTDUMP);
  if (::madvise(begin, bytes, MADV_DONTFORK) != 0) {
    return no_segment(rank, bytes, "cannot keep it from forked children: " + errno_text());
  }
  return made;
}

// ---- Segment

Result<Segment> Segment::create(int rank, std::size_t bytes) {
  UniqueFd memory(::memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) {
    return no_segment(rank, bytes,
                      "memfd_create: " + errno_text() +
                          (errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : ""));
  }
  KOLO_RETURN_IF_ERROR(set_size(memory.get(), rank, bytes));
  Result<Mapping> mapping = Mapping::map(memory.get(), bytes, true, rank);
  if (!mapping) return mapping.status();
  KOLO_RETURN_IF_ERROR(seal(memory.get()));  // after this nobody can map it for writing
  if (Status status = commit_memory(memory.get(), 0, Window::kHeaderBytes); !status) {
    return no_segment(rank, bytes, status.text());
  }
  mapping->header().nonce = random_digest();
  return Segment{std::move(memory), std::move(*mapping)};
}

namespace {

// What the system says it could give without swapping; nothing if it does not say.
std::optional<std::size_t> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName))
      return std::strtoull(line.c_str() + kName.size(), nullptr, 10) * 1024;
  }
  return std::nullopt;
}

}  // namespace

Status commit_memory(int memory, std::size_t offset, std::size_t bytes) {
  // Beyond what there is, the kernel would not refuse but kill some process.
  constexpr std::size_t kMuchBytes = std::size_t{64} << 20;
  if (bytes > kMuchBytes) {
    const auto available = available_bytes();
    if (available && bytes > *available) {
      return resource_error("no memory for " + std::to_string(bytes) +
                            " bytes of shared memory: the system has " +
                            std::to_string(*available) + " left; use fewer or smaller buffers");
    }
  }
  // In pieces, as a signal makes the kernel undo the piece at hand.
  constexpr std::size_t kPieceBytes = 16 << 20;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPieceBytes, bytes - done);
    if (::fallocate(memory, 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) == 0) {
      done += piece;
    } else if (errno != EINTR) {
      return resource_error("no memory for " + std::to_string(bytes) +
                            " bytes of shared memory: " + errno_text() +
                            "; use fewer or smaller buffers, or raise the memory limit");
    }
  }
  return Status::ok();
}

Result<Mapping> map_peer(int memory, int rank, std::size_t bytes, const Digest& nonce) {
  struct stat info {};
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (::fstat(memory, &info) != 0 || info.st_size != static_cast<off_t>(bytes) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return no_segment(rank, bytes, "it is not a sealed segment of that size");
  }
  Result<Mapping> mapping = Mapping::map(memory, bytes, false, rank);
  if (!mapping) return mapping.status();
  if (!equal_in_constant_time(mapping->header().nonce, nonce)) {
    return no_segment(rank, bytes, "the memory that arrived is not the one that it made");
  }
  return mapping;
}

}  // namespace kolo::internal
