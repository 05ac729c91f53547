// A page that is served asks for news, and changes only what has changed.

const EVERY_MS = 2000;
let version = null;

function replaceBody(state) {
  const opened = new Map([...document.querySelectorAll("details")].map((fold) => [fold.id, fold.open]));
  const focused = document.activeElement ? document.activeElement.id : "";
  document.title = state.title;
  document.getElementById("title").textContent = state.title;
  // The server has escaped every name, and the policy of the page forbids scripts and styles in it.
  document.getElementById("main").innerHTML = state.body;
  for (const fold of document.querySelectorAll("details")) if (opened.has(fold.id)) fold.open = opened.get(fold.id);
  page.data = state.data;
  setUp();
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
}

function isHeld() {
  // Somebody zooms, or marks text: the news can wait.
  return String(getSelection()).length > 0 || document.querySelector(".plot:active") !== null;
}

async function poll() {
  const live = document.getElementById("live");
  try {
    const answer = await fetch("data.json", { headers: version ? { "If-None-Match": version } : {}, cache: "no-store" });
    if (answer.status === 200) {
      const state = await answer.json();
      if (!isHeld()) {
        if (version !== null || state.going) replaceBody(state);
        version = answer.headers.get("ETag");
      }
      live.textContent = (state.going ? "following, " : "") + "as of " + new Date().toLocaleTimeString();
    } else if (answer.status >= 400) {
      live.textContent = (await answer.text()).slice(0, 200);
    }
  } catch {
    live.textContent = "codedfl watch has ended";
  }
  setTimeout(poll, EVERY_MS);
}

poll();
