// Runs a program with some variables added to the environment, and waits for it: for cases that
// need a process of their own.
//
// Threads: one. Ownership: nothing is left behind; a child that does not end is killed after 60 s.
#pragma once

#include <string>
#include <vector>

namespace fakegpu {

struct Ended {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string output;  // of stdout and stderr
};

class Child {
 public:
  Child(const std::string& program, const std::vector<std::string>& arguments,
        const std::vector<std::string>& variables);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill();
  void freeze();  // SIGSTOP
  void thaw();
  // Until it has written this line, or 20 s. False: it has not.
  bool await_line(const std::string& line);
  Ended wait();

 private:
  bool read_some(int limit_ms);

  int process_ = -1;
  int pipe_ = -1;
  std::string output_;  // so far
};

inline Ended run_child(const std::string& program, const std::vector<std::string>& arguments,
                       const std::vector<std::string>& variables) {
  return Child(program, arguments, variables).wait();
}

}  // namespace fakegpu
