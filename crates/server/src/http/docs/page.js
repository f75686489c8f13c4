// Renders /openapi.json: every operation by tag, with its parameters, schemas and a form to try it.
// Text from the document only ever becomes text nodes.

const METHODS = ["get", "post", "put", "patch", "delete"];

/** An element with attributes and children; children are elements or text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return made;
}

/** What a reference within the document points to, else the value itself. */
function resolve(api, value) {
  let found = value;
  while (found && found.$ref) {
    const steps = found.$ref.slice(2).split("/");
    found = steps.reduce((at, step) => at?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], api);
  }
  return found ?? {};
}

/** The last part of a reference, which is the schema's name. */
function nameOf(schema) {
  return schema?.$ref?.split("/").pop();
}

/** What a value may be, of several; where the type is said they only add to it. */
function alternativesOf(schema) {
  return schema.type ? undefined : schema.oneOf ?? schema.anyOf;
}

/** A schema's type in a few words. */
function typeOf(api, schema) {
  if (!schema) return "any";
  if (schema.$ref) return nameOf(schema);
  const several = alternativesOf(schema);
  if (several) return several.map((one) => typeOf(api, one)).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const types = [schema.type ?? "any"].flat().map((type) =>
    type === "array" ? `array of ${typeOf(api, schema.items)}` : type);
  const format = schema.format ? ` (${schema.format})` : "";
  return types.join(" or ") + format;
}

/** All fields of a schema with those of its parts, each with whether it must be there. */
function fieldsOf(api, schema) {
  const whole = resolve(api, schema);
  const parts = (whole.allOf ?? []).flatMap((part) => fieldsOf(api, part));
  const required = new Set(whole.required ?? []);
  const own = Object.entries(whole.properties ?? {}).map(([name, field]) =>
    ({ name, field, required: required.has(name) }));
  return [...parts, ...own];
}

/** The schemas a schema mentions, itself first, each once. */
function mentioned(api, schema, seen = new Map()) {
  const name = nameOf(schema);
  if (name && seen.has(name)) return seen;
  if (name) seen.set(name, schema);
  const whole = resolve(api, schema);
  const inner = [...(whole.oneOf ?? []), ...(whole.anyOf ?? []), ...(whole.allOf ?? []),
    ...Object.values(whole.properties ?? {})];
  if (whole.items) inner.push(whole.items);
  inner.forEach((one) => mentioned(api, one, seen));
  return seen;
}

/** A value such as a schema describes, to start a request body from. */
function exampleOf(api, schema, depth = 0) {
  const whole = resolve(api, schema);
  if (whole.example !== undefined) return whole.example;
  if (whole.default !== undefined) return whole.default;
  if (whole.enum) return whole.enum[0];
  const several = alternativesOf(whole);
  if (several && depth < 5) return exampleOf(api, several.find((one) => one.type !== "null"), depth + 1);
  const type = [whole.type].flat().find((one) => one !== "null");
  if (type === "array") return whole.items && depth < 5 ? [exampleOf(api, whole.items, depth + 1)] : [];
  if (type === "string") return "";
  if (type === "integer" || type === "number") return whole.minimum ?? 0;
  if (type === "boolean") return false;
  const wanted = fieldsOf(api, whole).filter(({ required }) => required);
  if (depth >= 5) return {};
  return Object.fromEntries(wanted.map(({ name, field }) => [name, exampleOf(api, field, depth + 1)]));
}

function table(head, rows) {
  const cells = (kind, row) => element("tr", {}, row.map((cell) => element(kind, {}, cell)));
  return element("table", {}, cells("th", head), rows.map((row) => cells("td", row)));
}

function schemaTables(api, schema) {
  const shown = [...mentioned(api, schema).entries()].map(([name, one]) => [name, one]);
  if (shown.length === 0) return [element("p", {}, element("code", {}, typeOf(api, schema)))];
  return shown.map(([name, one]) => {
    const whole = resolve(api, one);
    const rows = fieldsOf(api, one).map(({ name: field, field: inner, required }) => [
      element("code", {}, field),
      element("code", {}, typeOf(api, inner) + (required ? "" : ", optional")),
      inner.description ?? resolve(api, inner).description ?? "",
    ]);
    const body = rows.length > 0 ? table(["field", "type", ""], rows)
      : element("p", {}, element("code", {}, typeOf(api, whole)));
    return element("div", {}, element("h4", {}, name), element("p", {}, whole.description ?? ""), body);
  });
}

function contentOf(api, holder) {
  return Object.entries(resolve(api, holder).content ?? {});
}

function parametersPart(api, operation) {
  const rows = (operation.parameters ?? []).map((one) => resolve(api, one)).map((parameter) => [
    element("code", {}, parameter.name),
    parameter.in,
    element("code", {}, typeOf(api, parameter.schema) + (parameter.required ? "" : ", optional")),
    parameter.description ?? "",
  ]);
  return rows.length === 0 ? [] : [element("h4", {}, "Parameters"), table(["name", "in", "type", ""], rows)];
}

function bodyPart(api, operation) {
  return contentOf(api, operation.requestBody).flatMap(([type, content]) =>
    [element("h4", {}, `Body: ${type}`), ...schemaTables(api, content.schema)]);
}

function responsesPart(api, operation) {
  const entries = Object.entries(operation.responses ?? {});
  const rows = entries.map(([status, response]) => [
    element("code", {}, status),
    resolve(api, response).description ?? "",
    contentOf(api, response).map(([type, content]) =>
      element("div", {}, element("code", {}, `${type}: ${typeOf(api, content.schema)}`))),
  ]);
  const good = entries.filter(([status]) => status.startsWith("2"));
  const schemas = good.flatMap(([, response]) => contentOf(api, response))
    .map(([, content]) => content.schema).filter((schema) => nameOf(schema));
  return [element("h4", {}, "Responses"), table(["status", "", "body"], rows),
    ...schemas.flatMap((schema) => schemaTables(api, schema))];
}

/** What the caller needs, in words. */
function needs(operation) {
  const scopes = operation.security?.[0]?.token;
  if (!scopes) return "Takes no token.";
  return scopes.length === 0 ? "Takes any token." : `Takes a token with ${scopes.join(" and ")}.`;
}

/** The address for the values typed into a form. */
function addressOf(path, parameters, values) {
  let filled = path;
  const query = new URLSearchParams();
  for (const parameter of parameters) {
    const value = values.get(parameter.name) ?? "";
    if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (parameter.in === "query" && value !== "") query.append(parameter.name, value);
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Shows a response: JSON set out, an image as an image, all else as text. */
async function show(response, elapsedMs) {
  const type = response.headers.get("content-type") ?? "";
  const head = element("p", { class: response.ok ? "" : "wrong" },
    `${response.status} ${response.statusText} in ${Math.round(elapsedMs)} ms, request ${response.headers.get("x-request-id") ?? ""}`);
  const text = await response.text();
  if (type.startsWith("image/svg+xml")) {
    const source = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    return [head, element("img", { class: "answer", src: source, alt: "The answer as an image" })];
  }
  const readable = type.includes("json") && text ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return [head, readable ? element("pre", {}, readable) : undefined];
}

function tryForm(api, path, method, operation) {
  const parameters = (operation.parameters ?? []).map((one) => resolve(api, one));
  const inputs = parameters.map((parameter) => element("label", {}, parameter.name,
    element("input", { name: parameter.name, required: parameter.required, autocomplete: "off",
      placeholder: parameter.schema?.default })));
  const json = contentOf(api, operation.requestBody).find(([type]) => type.includes("json"));
  const body = json && element("textarea", { name: "body", spellcheck: "false", "aria-label": "Body" });
  if (body) body.value = JSON.stringify(exampleOf(api, json[1].schema), null, 2);
  const button = element("button", {}, "Send");
  const answer = element("div", { "aria-live": "polite" });
  const form = element("form", {}, element("h4", {}, "Try it"), inputs, body, button, answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const headers = {};
    const token = document.getElementById("token").value.trim();
    if (token && operation.security?.[0]?.token) headers.authorization = `Bearer ${token}`;
    if (body) headers["content-type"] = "application/json";
    const started = performance.now();
    try {
      const address = addressOf(path, parameters, new FormData(form));
      const response = await fetch(address, { method: method.toUpperCase(), headers, body: body?.value });
      const shown = await show(response, performance.now() - started);
      answer.replaceChildren(...shown.filter(Boolean));
    } catch (error) {
      answer.replaceChildren(element("p", { class: "wrong" }, String(error)));
    } finally {
      button.disabled = false;
    }
  });
  return form;
}

function operationPart(api, path, method, operation) {
  const title = element("summary", {}, element("span", { class: `method ${method}` }, method.toUpperCase()),
    element("span", { class: "path" }, path), element("span", { class: "faint" }, operation.summary ?? ""));
  const part = element("details", { class: "operation", id: operation.operationId }, title);
  // Filled when first opened: a page of a hundred operations stays quick.
  part.addEventListener("toggle", () => {
    if (part.childElementCount > 1) return;
    part.append(element("div", {}, element("p", {}, operation.description ?? ""),
      element("p", { class: "faint" }, needs(operation)), parametersPart(api, operation),
      bodyPart(api, operation), responsesPart(api, operation), tryForm(api, path, method, operation)));
  });
  return part;
}

function render(api) {
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("description").textContent = api.info.description ?? "";
  const byTag = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((one) => item[one])) {
      const tag = item[method].tags?.[0] ?? "other";
      byTag.set(tag, [...(byTag.get(tag) ?? []), { path, method, operation: item[method] }]);
    }
  }
  const sections = [...byTag].map(([tag, all]) => element("section", {}, element("h2", {}, tag),
    all.map(({ path, method, operation }) => operationPart(api, path, method, operation))));
  const links = [...byTag].map(([tag, all]) => [element("strong", {}, tag),
    all.map(({ operation }) => element("a", { href: `#${operation.operationId}` }, operation.summary ?? operation.operationId))]);
  document.getElementById("operations").replaceChildren(...sections);
  document.getElementById("contents").replaceChildren(...links.flat(2));
}

/** Opens the operation that the address names. */
function openNamed() {
  const part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (part instanceof HTMLDetailsElement) {
    part.open = true;
    part.scrollIntoView();
  }
}

const response = await fetch("/openapi.json");
render(await response.json());
addEventListener("hashchange", openNamed);
openNamed();
