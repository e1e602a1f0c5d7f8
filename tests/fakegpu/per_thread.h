// PerThread: one T for each thread that asks, made then and destroyed at the thread's end. Instead
// of thread_local, whose memory the C library frees in a way that ThreadSanitizer does not see when
// the library was opened at run time.
#pragma once

#include <pthread.h>

#include <cstdlib>

namespace fakegpu {

template <typename T>
class PerThread {
 public:
  PerThread() {
    if (pthread_key_create(&key_, [](void* own) { delete static_cast<T*>(own); }) != 0)
      std::abort();
  }
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  T& get() {
    if (void* own = pthread_getspecific(key_)) return *static_cast<T*>(own);
    T* const made = new T();
    pthread_setspecific(key_, made);
    return *made;
  }

 private:
  pthread_key_t key_{};
};

}  // namespace fakegpu
