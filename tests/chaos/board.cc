#include "tests/chaos/board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/unique_fd.h"

namespace kolo::chaos {

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

const char* word_of(Phase phase) {
  constexpr const char* kWords[] = {"not begun", "ready",    "init",           "steps",
                                    "negotiate", "idle",     "shutdown",       "after the failure",
                                    "waiting",   "shutdown", "everything done"};
  return kWords[static_cast<int>(phase)];
}

void Text::set(const std::string& text) {
  const std::size_t count = std::min(text.size(), characters.size() - 1);
  std::copy_n(text.data(), count, characters.data());
  characters[count] = '\0';
}

BoardFile BoardFile::map(const std::string& path, int flags) {
  const internal::UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!file.is_open()) throw std::runtime_error("cannot open " + path);
  if ((flags & O_CREAT) != 0 && ::ftruncate(file.get(), sizeof(Board)) != 0) {
    throw std::runtime_error("cannot size " + path);
  }
  void* at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  return BoardFile(static_cast<Board*>(at));  // zeros are what everything begins with
}

BoardFile BoardFile::create(const std::string& path) {
  return map(path, O_RDWR | O_CREAT | O_EXCL);
}
BoardFile BoardFile::open(const std::string& path) { return map(path, O_RDWR); }

BoardFile::BoardFile(BoardFile&& other) noexcept : board_(std::exchange(other.board_, nullptr)) {}
BoardFile::~BoardFile() {
  if (board_ != nullptr) ::munmap(board_, sizeof(Board));
}

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void sleep_us(std::int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

}  // namespace kolo::chaos
