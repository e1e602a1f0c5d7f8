#include "coordinator/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

class MemberTest : public ::testing::Test {
 protected:
  MemberTest() {
    topology_.add_process_set(1, {0, 1});
    topology_.add_process_set(2, {0, 2});
  }
  std::vector<Ticket> given_up(const std::function<bool(std::uint32_t)>& concerned) {
    std::vector<Ticket> tickets;
    for (const Finished& one : member_.give_up(concerned, [](const Unit&) { return Status(); })) {
      tickets.push_back(one.ticket);
    }
    return tickets;
  }
  Status apply(const Item& item) {
    plan_.reset();
    return member_.apply(item, plan_, finished_);
  }
  static RunItem run_of(UnitOrder order) {
    RunItem run;
    run.units.push_back(std::move(order));
    return run;
  }

  Topology topology_{{0, 0, 0}};
  Member member_{topology_, 1};
  std::optional<Plan> plan_;
  std::vector<Finished> finished_;
};

TEST_F(MemberTest, FullAtFirstSightThenASmallInteger) {
  ASSERT_TRUE(member_.submit(1, allreduce("a"), kNever).is_ok());
  Frame report = member_.take_report();
  ASSERT_EQ(report.facts.size(), 1u);
  ASSERT_TRUE(apply(run_of({3, allreduce("a"), true, {}})).is_ok());
  ASSERT_TRUE(plan_.has_value());
  EXPECT_EQ(plan_->units.at(0).ticket, 1u);
  EXPECT_EQ(plan_->units.at(0).run, 1u);
  EXPECT_EQ(plan_->cuts, (std::vector<std::vector<std::uint32_t>>{{0}}));

  ASSERT_TRUE(member_.submit(2, allreduce("a"), kNever).is_ok());
  report = member_.take_report();
  EXPECT_TRUE(report.facts.empty());
  EXPECT_EQ(report.toggles, (std::vector<Toggle>{{3, false}})) << "`true` was the first order's";
  ASSERT_TRUE(apply(run_of({3, nullptr, false, {}})).is_ok());
  EXPECT_EQ(plan_->units.at(0).run, 2u);

  ASSERT_TRUE(member_.submit(3, allreduce("a", 0, 99), kNever).is_ok());
  EXPECT_EQ(member_.take_report().facts.size(), 1u) << "another signature is negotiated anew";
}

TEST_F(MemberTest, AfterAnEvictionInFullAgain) {
  ASSERT_TRUE(member_.submit(1, allreduce("a"), kNever).is_ok());
  ASSERT_TRUE(apply(run_of({3, allreduce("a"), true, {}})).is_ok());
  ASSERT_TRUE(apply(Evict{3}).is_ok());
  static_cast<void>(member_.take_report());
  ASSERT_TRUE(member_.submit(2, allreduce("a"), kNever).is_ok());
  EXPECT_EQ(member_.take_report().facts.size(), 1u);
}

TEST_F(MemberTest, ANameUnderWayIsADuplicate) {
  ASSERT_TRUE(member_.submit(1, allreduce("a"), kNever).is_ok());
  const Status again = member_.submit(2, allreduce("a"), kNever);
  EXPECT_EQ(again.code(), StatusCode::kDuplicateName);
  EXPECT_THAT(again.text(), HasSubstr("'a'"));
  EXPECT_TRUE(member_.submit(3, allreduce("a", 1), kNever).is_ok()) << "another process set";
}

TEST_F(MemberTest, ACorrectedCallWaitsBehindTheRefusedOne) {
  Unit refused = *allreduce("a");
  refused.invalid = "bad";
  ASSERT_TRUE(member_.submit(0, share(refused), kNever).is_ok());
  ASSERT_TRUE(member_.submit(7, allreduce("a"), 5s).is_ok());
  member_.join(0);
  EXPECT_EQ(member_.next_deadline(), 5s) << "its time limit counts while it waits";
  Frame report = member_.take_report();
  EXPECT_EQ(report.facts.size(), 1u);
  EXPECT_TRUE(report.joined.empty()) << "not before the last submission is out";
  ASSERT_TRUE(apply(failure_of({0, "a"}, {0, 1, 2}, timed_out("x"))).is_ok());
  EXPECT_TRUE(finished_.empty()) << "the refused one has no ticket";
  report = member_.take_report();
  ASSERT_EQ(report.facts.size(), 1u);
  EXPECT_TRUE(report.facts[0].unit->invalid.empty());
  EXPECT_EQ(report.joined.size(), 1u);
}

TEST_F(MemberTest, ADeadlineIsPublishedOnce) {
  ASSERT_TRUE(member_.submit(1, allreduce("a"), 10ms).is_ok());
  static_cast<void>(member_.take_report());
  member_.tick(9ms);
  EXPECT_TRUE(member_.take_report().empty());
  member_.tick(10ms);
  EXPECT_EQ(member_.take_report().expired.size(), 1u);
  member_.tick(11ms);
  EXPECT_TRUE(member_.take_report().empty());
  EXPECT_EQ(member_.next_deadline(), kNever);
}

TEST_F(MemberTest, RunsOfOtherSetsKeepTheirPlaces) {
  ASSERT_TRUE(member_.submit(1, allreduce("a", 1), kNever).is_ok());
  RunItem run;
  run.units.push_back({0, allreduce("x", 2), false, {}});
  run.units.push_back({0, allreduce("a", 1), false, {}});
  run.cuts = {{0}, {1}};
  ASSERT_TRUE(apply(run).is_ok());
  ASSERT_TRUE(plan_.has_value());
  EXPECT_EQ(plan_->units.at(0).run, 0u);
  EXPECT_EQ(plan_->units.at(1).run, 1u);
  RunItem other;
  other.units.push_back({0, allreduce("y", 2), false, {}});
  ASSERT_TRUE(apply(other).is_ok());
  EXPECT_FALSE(plan_.has_value());
}

TEST_F(MemberTest, AnAbsentRankGivesTheNeutralElement) {
  ASSERT_TRUE(apply(run_of({0, allreduce("a"), false, {1}})).is_ok());
  ASSERT_TRUE(plan_.has_value());
  EXPECT_EQ(plan_->units.at(0).ticket, 0u);
  EXPECT_EQ(plan_->units.at(0).run, 1u);
}

TEST_F(MemberTest, GivingUpForgets) {
  ASSERT_TRUE(member_.submit(1, allreduce("a", 0), kNever).is_ok());
  ASSERT_TRUE(member_.submit(2, allreduce("a", 1), kNever).is_ok());
  EXPECT_EQ(given_up([](std::uint32_t set) { return set == 1; }), std::vector<Ticket>{2});
  ASSERT_TRUE(apply(failure_of({1, "a"}, {1}, timed_out("x"))).is_ok());
  EXPECT_TRUE(finished_.empty());
  EXPECT_EQ(given_up([](std::uint32_t) { return true; }), std::vector<Ticket>{1});
}

TEST_F(MemberTest, OrdersThatNoSequencerCanHaveSentAreRefused) {
  const auto refused = [this](const Item& item) {
    return apply(item).code() == StatusCode::kInternal;
  };
  ASSERT_TRUE(member_.submit(1, allreduce("a"), kNever).is_ok());
  EXPECT_TRUE(refused(run_of({0, allreduce("other"), false, {}}))) << "not submitted here";
  EXPECT_TRUE(refused(run_of({8, nullptr, false, {}}))) << "an unknown id";
  EXPECT_TRUE(refused(run_of({0, allreduce("a", 99), false, {}}))) << "an unknown set";
  EXPECT_TRUE(refused(Evict{8}));
  EXPECT_TRUE(refused(JoinDone{99, 0}));
  for (const auto& cuts : std::vector<std::vector<std::vector<std::uint32_t>>>{
           {{1}}, {{0, 0}}, {{}}, {{0}, {}}, {{0}, {0}}}) {
    Member fresh(topology_, 2);
    RunItem run = run_of({0, allreduce("a", 1), false, {}});
    run.cuts = cuts;
    std::optional<Plan> plan;
    EXPECT_EQ(fresh.apply(run, plan, finished_).code(), StatusCode::kInternal);
  }
  RunItem across;
  across.units.push_back({0, allreduce("x", 2), false, {}});
  across.units.push_back({0, allreduce("a"), false, {}});
  across.cuts = {{0, 1}};
  EXPECT_TRUE(refused(across)) << "a cut across process sets";
}

}  // namespace
}  // namespace kolo::internal
