// A device: its streams, the order between its default stream and the blocking ones, and the error
// that broke it.
//
// Threads: any. Ownership: shares its streams with the handle table.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fakegpu/stream.h"

namespace fakegpu {

class Device {
 public:
  Device(int number, std::string bus_id);

  int number() const { return number_; }
  const std::string& bus_id() const { return bus_id_; }

  // 0, or what broke it: every call of the process fails with it from then on.
  int error() const { return error_.load(); }
  // Runs a piece of work, but not on a broken device. Nobody is told of what broke it before the
  // work that runs has seen it, too, as the real one then writes nothing more: see settled_error().
  void work(const std::function<void()>& body);
  // error(), once no work runs any more; work that does not stop is not waited for.
  int settled_error() const;
  void set_broken(int error) { error_ = error; }

  StreamPointer make_stream(StreamKind kind);
  StreamPointer legacy_stream() const { return legacy_; }

  // Puts work into one of the device's streams, behind `after` and behind what the rules of the
  // default stream say.
  TicketPointer submit(Stream& stream, Stream::Work work, std::vector<TicketPointer> after = {});

  // The last work of every stream that is not done.
  std::vector<TicketPointer> tails();
  // Waits for all work so far.
  void synchronize();
  // Whether a blocking stream is being captured: the default stream must not be used then.
  bool has_blocking_capture();
  void invalidate_captures();

 private:
  std::vector<StreamPointer> streams();

  const int number_;
  const std::string bus_id_;
  std::atomic<int> error_{0};
  std::atomic<int> working_{0};
  std::mutex order_;  // of submissions
  std::mutex mutex_;  // of the list
  std::vector<std::weak_ptr<Stream>> streams_;
  StreamPointer legacy_;
};

}  // namespace fakegpu
