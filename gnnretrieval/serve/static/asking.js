"use strict";
// Requests to the server, with its token where it has one; for the explorer and the map.

// The token is kept while the tab is open, and sent nowhere but to this server.
const token = () => sessionStorage.getItem("token");
function askForToken() {
  find("token-form").hidden = false;
  find("token").focus();
  throw new Error(token() ? "The server's token is another one." : "This server answers only who has its token.");
}
function keepToken() {
  sessionStorage.setItem("token", find("token").value.trim());
  find("token").value = "";
}

async function answerOf(path, body) {
  let response;
  const headers = token() ? { authorization: `Bearer ${token()}` } : {};
  if (body) headers["content-type"] = "application/json";
  try {
    response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401) askForToken();
  if (!response.ok) {
    const answer = await response.json().catch(() => null);
    throw new Error(answer?.error?.message || `The server answered ${response.status}.`);
  }
  return response;
}
const ask = async (path, body) => (await answerOf(path, body)).json().catch(() => null);
