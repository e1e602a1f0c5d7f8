#include "transport/window.h"

#include <string>

namespace kolo::internal {

Result<std::size_t> Window::carve(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  if (rounded < bytes || carved_ > bytes_ || rounded > bytes_ - carved_) {
    return resource_error("the shared segment of " + std::to_string(bytes_) +
                          " bytes has no room for " + std::to_string(bytes) +
                          " more. Raise KOLO_SHM_BYTES");
  }
  const std::size_t offset = carved_;
  KOLO_RETURN_IF_ERROR(commit(offset, rounded));
  carved_ += rounded;
  return offset;
}

}  // namespace kolo::internal
