#include "bindings_c/options.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace kolo::internal {
namespace {

constexpr std::size_t kFirstOptions = offsetof(kolo_options, device);  // as 0.1's header began
constexpr std::size_t kLargestOptions = 4096;  // bounds how far a future, longer struct is read

Status apply_shape(const kolo_options& options, Submission& submission) {
  if (options.shape == nullptr) {
    if (options.ndim == 0) return Status::ok();
    return invalid_argument("kolo_options.shape is null and ndim is " +
                            std::to_string(options.ndim) + "; give the dimensions, or ndim 0");
  }
  constexpr std::int32_t kMaxDims = 32;
  if (options.ndim < 0 || options.ndim > kMaxDims) {
    return invalid_argument("kolo_options.ndim is " + std::to_string(options.ndim) +
                            "; a shape has 0 to " + std::to_string(kMaxDims) + " dimensions");
  }
  submission.has_shape = true;
  submission.shape = {options.shape, static_cast<std::size_t>(options.ndim)};
  return Status::ok();
}

}  // namespace

Result<kolo_options> known_options(const kolo_options& options) {
  const std::size_t size = options.struct_size;
  if (size == kFirstOptions) {
    kolo_options known = KOLO_OPTIONS_INIT;
    std::memcpy(&known, &options, size);
    return known;
  }
  if (size < sizeof(kolo_options) || size > kLargestOptions) {
    return invalid_argument("kolo_options.struct_size is " + std::to_string(size) + ", not " +
                            std::to_string(sizeof(kolo_options)) +
                            "; begin with KOLO_OPTIONS_INIT");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(&options);
  if (std::any_of(bytes + sizeof(kolo_options), bytes + size, [](auto b) { return b != 0; })) {
    return Status(StatusCode::kUnsupported,
                  "kolo_options sets a field that this library does not know; it is older than the "
                  "header: update libkolo");
  }
  return options;
}

Status apply_options(const kolo_options& options, Submission& submission) {
  if (options.name != nullptr) submission.name = options.name;
  KOLO_RETURN_IF_ERROR(apply_shape(options, submission));
  submission.process_set = options.pset;
  if (options.prescale == 0.0 || options.postscale == 0.0) {
    return invalid_argument(
        "kolo_options.prescale or postscale is 0; 1 means none, and "
        "KOLO_OPTIONS_INIT sets it");
  }
  if (options.reserved != 0) {
    return invalid_argument("kolo_options.reserved is " + std::to_string(options.reserved) +
                            "; leave it at 0");
  }
  submission.device = options.device;
  submission.stream = options.stream;
  submission.prescale = options.prescale;
  submission.postscale = options.postscale;
  if (options.timeout_ms < 0 || options.timeout_ms > kMostMilliseconds) {
    return invalid_argument("kolo_options.timeout_ms is " + std::to_string(options.timeout_ms) +
                            "; give 1 or more, or 0 for no limit");
  }
  if (options.timeout_ms > 0) submission.timeout = std::chrono::milliseconds(options.timeout_ms);
  for (const std::int32_t flag : {options.persistent, options.allocate}) {
    if (flag == 0 || flag == 1) continue;
    return invalid_argument("kolo_options.persistent and allocate must be 0 or 1, not " +
                            std::to_string(flag) + "; begin with KOLO_OPTIONS_INIT");
  }
  submission.allocate = options.allocate == 1;
  submission.send_counts = options.send_counts;
  submission.receive_counts = options.recv_counts;
  if (options.result != nullptr) {
    submission.participants = &options.result->participants;
    submission.nonfinite = &options.result->nonfinite;
  }
  if (options.callback != nullptr) {
    submission.callback = [callback = options.callback, user = options.user](const Status& s) {
      callback(static_cast<kolo_status>(s.code()), s.text().c_str(), user);
    };
  }
  return Status::ok();
}

}  // namespace kolo::internal
