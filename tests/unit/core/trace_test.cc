// Trace: the file is complete JSON after a normal end, and whole lines before it.
#include "core/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace kolo::internal {
namespace {

using nlohmann::json;
using Phase = Trace::Phase;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kolo-trace-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    logger_.set_sink([this](LogLevel, std::string_view text) { warnings_.emplace_back(text); });
  }
  ~TraceTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Trace> open(int rank) {
    auto trace = Trace::open(folder_, rank, 7, logger_);
    EXPECT_TRUE(trace.is_ok()) << trace.status().to_string();
    return *std::move(trace);
  }
  [[nodiscard]] std::string text(int rank) const {
    std::ifstream file(folder_ + "/kolo-rank" + std::to_string(rank) + ".g7.json");
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }

  std::string folder_;
  std::vector<std::string> warnings_;
  Logger logger_;
};

TEST_F(TraceTest, IsStrictJsonWithOneEventALine) {
  {
    auto trace = open(3);
    trace->record(Phase::kEnqueue, 1, "a", 1500ns);
    trace->record(Phase::kReady, 1, "a", 2us);
    trace->record(Phase::kOrdered, 1, "a", 3us);
    trace->record(Phase::kStart, 1, "a", 4us);
    trace->record(Phase::kDone, 1, "a", 5us);
  }
  const json events = json::parse(text(3));
  ASSERT_EQ(events.size(), 6u);  // and the rank's name
  EXPECT_EQ(events[0]["args"]["name"], "rank 3");
  EXPECT_EQ(events[1]["ts"], 1.5);
  const char* phases[] = {"enqueue", "ready", "ordered", "start", "done"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[i + 1]["args"]["phase"], phases[i]);
    EXPECT_EQ(events[i + 1]["pid"], 3);
    EXPECT_EQ(events[i + 1]["id"], 1);
  }
  const std::string all = text(3);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 8);  // brackets and six events
}

TEST_F(TraceTest, BeforeItsEndOnlyTheBracketIsMissing) {
  auto trace = open(0);
  for (std::uint64_t i = 0; i < 10'000; ++i) trace->record(Phase::kEnqueue, i, "step", 1us);
  EXPECT_TRUE(json::accept(text(0) + "]"));  // whole records only, also where it flushed by itself
  trace->flush();
  const std::string all = text(0);
  EXPECT_FALSE(json::accept(all));
  EXPECT_EQ(json::parse(all + "]").size(), 10'001u);
}

TEST_F(TraceTest, NamesOfAnyBytesAreReadable) {
  std::string name = "q\"b\\n\nt\t\x01\x7f\xff";
  {
    auto trace = open(0);
    trace->record(Phase::kEnqueue, 1, name, 0ns);
    trace->record(Phase::kEnqueue, 2, std::string(4096, 'n'), 0ns);
  }
  const json events = json::parse(text(0));
  EXPECT_EQ(events[1]["name"], "q\"b\\n\nt\t\x01\x7f\u00ff");
  const std::string cut = events[2]["name"];
  EXPECT_EQ(cut, std::string(cut.size(), 'n'));
  EXPECT_GE(cut.size(), 64u);
}

TEST_F(TraceTest, RecordsOfSeveralThreadsDoNotMix) {
  {
    auto trace = open(0);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&trace, t] {
        for (int i = 0; i < 3000; ++i)
          trace->record(Phase::kReady, t, "t" + std::to_string(t), 1us);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const json events = json::parse(text(0));
  ASSERT_EQ(events.size(), 12'001u);
  for (std::size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["name"], "t" + std::to_string(events[i]["id"].get<int>()));
  }
}

TEST_F(TraceTest, AFullDiskEndsTheTraceWithOneWarning) {
  std::filesystem::create_symlink("/dev/full", folder_ + "/kolo-rank0.g7.json");
  {
    auto trace = open(0);
    for (std::uint64_t i = 0; i < 10'000; ++i) trace->record(Phase::kDone, i, "step", 1us);
  }
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], ::testing::HasSubstr("kolo-rank0.g7.json"));
  EXPECT_THAT(warnings_[0], ::testing::HasSubstr("No space left on device"));
}

TEST_F(TraceTest, AFolderThatCannotBeMadeIsAnErrorWithTheCure) {
  const auto trace = Trace::open(folder_ + "/a/b", 0, 1, logger_);
  ASSERT_FALSE(trace.is_ok());
  EXPECT_EQ(trace.status().code(), StatusCode::kResource);
  EXPECT_THAT(trace.status().text(), ::testing::HasSubstr("KOLO_TIMELINE"));
}

TEST(TraceOff, CostsABranch) { trace_phase(nullptr, Phase::kDone, 1, "x", 0ns); }

}  // namespace
}  // namespace kolo::internal
