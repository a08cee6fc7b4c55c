"use strict";
const digest = document.body.dataset.digest;
const articles = [...document.querySelectorAll("article")];
const queryOf = (article) => decodeURIComponent(article.dataset.query);
let answers = new Map();
try {  // answers survive a reload if the browser lets files store something
  answers = new Map(Object.entries(JSON.parse(localStorage.getItem(digest)) || {}));
} catch { }

function show() {
  for (const article of articles)
    for (const button of article.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(answers.get(queryOf(article)) === button.value));
  const done = articles.filter((article) => answers.has(queryOf(article))).length;
  document.getElementById("count").textContent = `${done} of ${articles.length} answered`;
}

for (const article of articles)
  for (const button of article.querySelectorAll("button"))
    button.addEventListener("click", () => {
      answers.set(queryOf(article), button.value);
      try {
        localStorage.setItem(digest, JSON.stringify(Object.fromEntries(answers)));
      } catch { }
      show();
    });

document.getElementById("download").addEventListener("click", () => {
  const text = JSON.stringify({ digest, answers: Object.fromEntries(answers) });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "answers.json";
  link.click();
});

show();
