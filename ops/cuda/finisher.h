// Finisher: the thread that waits for one device, so that nobody else does. It sleeps in
// cudaEventSynchronize until the oldest task's event is over, then ends the task. Tasks of one
// device end in the order of their launch, since they share its stream.
//
// Threads: push() from the launch thread. The destructor waits for what has been pushed.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "ops/cuda/task.h"

namespace kolo::internal::cuda {

// This thread's calls leave alone what other threads capture, in whatever mode.
void relax_capture(const Runtime& runtime);

class Finisher {
 public:
  // `stream`: of the tasks. `notify` is called after each end. Throws std::system_error if there is
  // no thread.
  Finisher(const Runtime& runtime, int device, StreamHandle stream, std::function<void()> notify);
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;
  ~Finisher();

  void push(Task& task);

 private:
  void run();
  Status wait(Task& task);

  const Runtime& runtime_;
  int device_;
  StreamHandle stream_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task*> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kolo::internal::cuda
