#include "transport/window.h"

#include <sys/mman.h>

#include <string>

namespace kolo::internal {
namespace {

constexpr std::size_t kPage = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Result<std::size_t> Window::reserve(std::size_t bytes) {
  const std::size_t rounded = whole_pages(bytes);
  if (rounded < bytes || carved_ > bytes_ || rounded > bytes_ - carved_) {
    return resource_error("the shared segment of " + std::to_string(bytes_) +
                          " bytes has no room for " + std::to_string(bytes) +
                          " more. Raise KOLO_SHM_BYTES");
  }
  const std::size_t offset = carved_;
  carved_ += rounded;
  return offset;
}

Result<std::size_t> Window::carve(std::size_t bytes) {
  const Result<std::size_t> offset = reserve(bytes);
  if (!offset) return offset;
  const std::size_t rounded = whole_pages(bytes);
  if (Status status = commit(*offset, rounded); !status) {
    carved_ = *offset;
    return status;
  }
  areas_.push_back({*offset, rounded});
  return offset;
}

void Window::map_area(std::size_t offset, std::size_t bytes) {
  ::madvise(own_ + offset, bytes, MADV_POPULATE_WRITE);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    ::madvise(const_cast<std::byte*>(of(peer)) + offset, bytes, MADV_POPULATE_READ);
  }
}

void Window::map_carved() {
  map_area(0, kHeaderBytes);
  for (const Area& area : areas_) map_area(area.offset, area.bytes);
}

}  // namespace kolo::internal
