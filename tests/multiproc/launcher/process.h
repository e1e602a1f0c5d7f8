// Running programs from tests: with an environment, a time limit, and their output caught. Nothing
// outlives a test: a Child that is destroyed kills its process group.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace kolo::test {

struct RunOptions {
  double timeout_seconds = 30;
  std::map<std::string, std::string> environment;  // on top of this process's own
  std::vector<std::string> raw_environment;        // entries added as they are
  bool close_stdin = false;                        // else /dev/null
  bool merge = false;                              // stderr into stdout
};

struct Outcome {
  int exit_code = -1;  // 128 + signal for a death by signal; -1: over the time limit, killed
  std::string out;
  std::string err;
  double seconds = 0;
};

class Child {
 public:
  Child(const std::vector<std::string>& arguments, const RunOptions& options);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  Outcome wait();  // collects all output until the end; once

 private:
  double limit_seconds_;
  double started_;
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

Outcome run(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A fresh folder, removed with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // An executable script; its path.
  std::string script(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

double now_seconds();
void sleep_seconds(double seconds);
std::string read_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);
// Waits until the file exists and is not empty; false after `limit` seconds.
bool wait_for_file(const std::string& path, double limit_seconds);
// Whether process `pid` lives (a zombie does not).
bool is_alive(pid_t pid);
// The living processes of a group.
std::vector<pid_t> group_members(pid_t group);
// Waits until no member of any group lives; false after `limit` seconds. Who has been sent SIGKILL
// by then, and only waits for a turn on a busy machine, has ten more seconds to go.
bool wait_until_gone(const std::vector<pid_t>& groups, double limit_seconds);
// The living processes whose environment has this entry ("NAME=value"): those of a job that was
// started with it, whatever group or session they are in.
std::vector<pid_t> holders_of(const std::string& entry);
// Waits until there are none; the limit as above.
bool wait_until_nobody_has(const std::string& entry, double limit_seconds);
// `full` with KOLO_TEST_LONG set, a tenth (at least 20) otherwise.
int repetitions(int full);
bool long_tests();

}  // namespace kolo::test
