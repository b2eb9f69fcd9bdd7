// What a load test asks: every task with every subject, then the first again.

const TASKS = [
  "Explain {} to a child.",
  "Write a short story about {}.",
  "List ten facts about {}.",
  "Write a letter of complaint about {}.",
  "Write a Python function that sorts records about {} by date.",
  "Write a poem of four verses about {}.",
  "Describe step by step how somebody would take care of {}.",
  "Write an interview with an expert on {}.",
  "Compare {} of today with those of a hundred years ago.",
  "Write a JSON object with made-up data about {}.",
  "Write a news report about {}.",
];
const SUBJECTS = [
  "lighthouses", "bicycles", "honey bees", "railway stations", "volcanoes", "old maps", "bakeries", "river boats",
  "public libraries", "apple trees", "wind turbines", "chess clubs", "glaciers", "violins", "night markets",
  "weather balloons", "sheep dogs", "canal locks", "paper mills", "post offices", "greenhouses", "clock towers",
  "ferries", "mountain huts",
];

// Their numbers have no common divisor, so all pairs come.
export const PROMPTS = Array.from({ length: TASKS.length * SUBJECTS.length }, (_, number) =>
  TASKS[number % TASKS.length].replace("{}", SUBJECTS[number % SUBJECTS.length]));
