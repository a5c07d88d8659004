// Writes src/api/schema.ts from the server's openapi.json: a type for each schema, and for each route what it takes and
// what it gives. With --check it only compares. Run it with: npm run api
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = here("../src/api/schema.ts");
const api = JSON.parse(readFileSync(here("../../crates/redrive-server/openapi.json"), "utf8"));

const name = (reference) => reference.split("/").pop();
const union = (parts) => [...new Set(parts)].join(" | ");
const key = (text) => (/^[A-Za-z_$][\w$]*$/.test(text) ? text : JSON.stringify(text));

function type(schema) {
  if (!schema || Object.keys(schema).length === 0) return "unknown";
  if (schema.$ref) return name(schema.$ref);
  if (schema.enum) return union(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.allOf) return schema.allOf.map(type).join(" & ");
  const either = schema.oneOf ?? schema.anyOf;
  if (either) return union(either.map(type));
  if (Array.isArray(schema.type)) return union(schema.type.map((one) => type({ ...schema, type: one })));
  switch (schema.type) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      return `Array<${type(schema.items)}>`;
    case "object":
      if (schema.properties) return object(schema);
      return `Record<string, ${type(schema.additionalProperties === true ? undefined : schema.additionalProperties)}>`;
    default:
      return "unknown";
  }
}

function object(schema) {
  const required = new Set(schema.required ?? []);
  const lines = Object.entries(schema.properties).map(([field, value]) => {
    return `${key(field)}${required.has(field) ? "" : "?"}: ${type(value)}`;
  });
  return `{ ${lines.join("; ")} }`;
}

/** What stands in the envelope. */
function answered(responses) {
  for (const [status, response] of Object.entries(responses)) {
    const schema = response.content?.["application/json"]?.schema;
    if (!status.startsWith("2") || !schema) continue;
    const envelope = schema.$ref ? api.components.schemas[name(schema.$ref)] : schema;
    return type(envelope.properties?.data);
  }
  return "string";
}

function route(operation, shared) {
  const parameters = [...shared, ...(operation.parameters ?? [])];
  const of = (place) => parameters.filter((parameter) => parameter.in === place);
  const fields = (list) => list.map((one) => `${key(one.name)}${one.required ? "" : "?"}: ${type(one.schema)}`);
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return `{ path: { ${fields(of("path")).join("; ")} }; query: { ${fields(of("query")).join("; ")} }; body: ${
    body ? type(body) : "undefined"
  }; data: ${answered(operation.responses)} }`;
}

const schemas = Object.entries(api.components.schemas)
  .filter(([title]) => !title.startsWith("Envelope_"))
  .map(([title, schema]) => `export type ${title} = ${type(schema)};`);
const routes = Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([method]) => /^(get|post|put|patch|delete)$/.test(method))
    .map(([method, operation]) => {
      return `  "${method.toUpperCase()} ${path}": ${route(operation, methods.parameters ?? [])};`;
    }),
);
const text = `// Made from crates/redrive-server/openapi.json by \`npm run api\`. Not to be edited.

${schemas.join("\n")}

export interface Routes {
${routes.join("\n")}
}
`;

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("error: src/api/schema.ts is not what openapi.json says\nhint: npm run api");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
