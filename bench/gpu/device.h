// Device: the GPU that a benchmark measures on: its libraries, memory and clock; and the line that
// says what was measured where.
//
// One thread. What fails ends the program (die()): a benchmark has nothing to save; kNoDeviceExit
// where there is none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/options.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/runtime.h"

namespace kolo::bench {

namespace cuda = kolo::internal::cuda;

inline constexpr int kNoDeviceExit = 77;
inline constexpr int kWrongExit = 3;  // numbers are not what they must be

class Device {
 public:
  // Makes device `number` (modulo how many there are) current on this thread.
  explicit Device(int number);

  [[nodiscard]] const internal::Config& config() const { return config_; }
  [[nodiscard]] const cuda::Runtime& runtime() const { return *runtime_; }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int count() const { return count_; }
  // Whether a CPU plays the device: then figures mean nothing.
  [[nodiscard]] bool is_fake() const { return is_fake_; }

  void must(cuda::Error error, const char* what) const;
  [[nodiscard]] cuda::DeviceBuffer allocate(std::size_t bytes) const;
  [[nodiscard]] cuda::Stream stream() const;
  void synchronize(cuda::StreamHandle stream) const;
  void write(void* device, const std::vector<float>& values) const;
  [[nodiscard]] std::vector<float> read(const void* device, std::size_t count) const;
  // Microseconds on the device from before to after what `queue` puts into the stream.
  [[nodiscard]] double time_us(cuda::StreamHandle stream, const std::function<void()>& queue);

 private:
  using ElapsedTime = cuda::Error(float* ms, cuda::EventHandle from, cuda::EventHandle to);
  using Event = cuda::Owned<cuda::EventHandle, &cuda::Functions::cudaEventDestroy>;
  [[nodiscard]] Event timing_event() const;

  internal::Config config_;
  std::unique_ptr<const cuda::Runtime> runtime_;
  ElapsedTime* elapsed_time_ = nullptr;
  int number_ = 0;
  int count_ = 0;
  bool is_fake_ = false;
  Event begin_;
  Event end_;
};

// How many of the values are not what was expected.
std::size_t count_wrong(const std::vector<float>& values, float expected);

// What every JSON line of a program says: --commit and --machine as given, versions, fakes.
struct Origin {
  std::string commit;
  std::string machine;
  std::string json;  // file to append to; "": none
};

// Prints the head's first lines: machine, commit, versions, and that fakes mean nothing.
void print_origin(const Origin& origin, const Device& device, const std::string& peer_version);
// Adds the origin to the row, and appends it to the file.
void write_json(const Origin& origin, const Device& device, nlohmann::json row);

}  // namespace kolo::bench
