// SPDX-License-Identifier: Apache-2.0
// Draws the page from the data in it.
"use strict";

{
  const root = document.getElementById("page");
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.kind === "comparison") drawComparison(root, data);
  else drawRun(root, data.runs[0]);
  if (data.refresh_seconds) follow(root, data.refresh_seconds);
}
